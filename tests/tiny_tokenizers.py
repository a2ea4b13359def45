"""Tiny tokenizers with chat templates: byte-level pairs, trained on a few sentences, as most models have them."""

import functools

SPECIAL = ["<s>", "</s>", "<unk>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"]
SENTENCES = ["The eel was a riddle to everyone who looked for its beginning.", "[INST] tell me [/INST] a story\n"] * 40
VOCABULARY = 400

BLOCKS = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
TRIMMED = "{{ bos_token }}{% for m in messages %}[INST] {{ m['content'] | trim }} [/INST]{% endfor %}"
PARTS = (
    "<|system|>\n" + "A long word of welcome from the system. " * 2 + "<|end|>\n"
    "{% for m in messages %}<|user|>\n{% for c in m['content'] %}{% if c['type'] == 'text' %}{{ c['text'] }}{% endif %}"
    "{% endfor %}<|end|>\n{% endfor %}<|assistant|>\n"
)
TEMPLATES = {"blocks": BLOCKS, "trimmed": TRIMMED, "parts": PARTS}


@functools.cache
def _trained():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return tokenizer.to_str()


def tiny_tokenizer(template=BLOCKS):
    """A fast tokenizer; its own addition to a text is one beginning-of-sequence token."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    known = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(_trained()), **known)
    tokenizer.chat_template = template
    return tokenizer


class WithoutOffsets:
    """A tokenizer that does not say where its tokens stand in the text, as those written in Python."""

    is_fast = False

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer

    def __call__(self, text, **options):
        assert "return_offsets_mapping" not in options
        return self._tokenizer(text, **options)

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)
