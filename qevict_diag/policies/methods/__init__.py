"""Published methods as policies, one file each: equation, source, and where it departs from the original.

A method is a function of its parameters, all with defaults, that gives a `Policy`; `catalogue.METHODS` lists them. Its
parameters are set in its name: ``snapkv(window=32,pool=max)``. Every method scores what its own cache lets it see: the
softmax over the tokens that are alive, which on recorded queries is the FullKV row restricted and renormalized. What a
replay cannot show is the drift of hidden states that eviction causes.
"""
