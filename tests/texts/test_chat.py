"""Chat prompts: the template stays whole, the user's text is cut, and the length is exact."""

import json
from dataclasses import replace

import pytest
from tiny_models import build, transformers_noise
from tiny_tokenizers import BLOCKS, PARTS, TEMPLATES, TRIMMED, VOCABULARY, WithoutOffsets, tiny_tokenizer

from qevict_diag.errors import InputError, ShortTextError
from qevict_diag.record import RecordOptions, check, record
from qevict_diag.texts.chat import chat_prompt, rendering, reply_tokens, template_sha256
from qevict_diag.texts.source import Message, Source
from qevict_diag.trace.trace import Trace

pytestmark = transformers_noise
TEXT = " ".join(f"Riddle {number} of the eel: Grüße!" for number in range(20)) + "\n"
OPTIONS = RecordOptions(prefill=90, decode=5, prompt_queries=4, chat=True)


def source(text=TEXT):
    return Source("eel", text)


def whole(tokenizer, text):
    """Token ids of the whole rendering, by transformers' own way."""
    content = [{"type": "text", "text": text}] if tokenizer.chat_template == PARTS else text
    said = [{"role": "user", "content": content}]
    return tokenizer.apply_chat_template(said, add_generation_prompt=True, return_dict=True)["input_ids"]


@pytest.mark.parametrize("wrapped", [lambda t: t, WithoutOffsets], ids=["fast", "without offsets"])
@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
@pytest.mark.parametrize("length", [85, 90, 91, 123])
def test_head_and_tail_stay_and_the_text_is_cut_at_its_end(template, length, wrapped):
    tokenizer = wrapped(tiny_tokenizer(template))
    ids, full = chat_prompt(source(), tokenizer, length), whole(tokenizer, TEXT)
    assert len(ids) == length
    kept = next(n for n in range(length) if ids[n:] == full[len(full) - length + n :] and ids[:n] == full[:n])
    told = rendering(source(), tokenizer)
    cut = tokenizer.decode(ids[:kept]).removeprefix(told.head)
    assert len(cut) > 10
    assert TEXT.startswith(cut.rstrip("\N{REPLACEMENT CHARACTER}"))
    assert tokenizer.decode(ids[kept:]) == told.tail


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_a_text_of_just_the_length_is_not_cut(template):
    tokenizer = tiny_tokenizer(template)
    full = whole(tokenizer, TEXT)
    assert chat_prompt(source(), tokenizer, len(full)) == full


def test_a_shorter_text_is_refused_with_the_length_that_fits():
    tokenizer = tiny_tokenizer()
    fits = len(whole(tokenizer, "Short."))
    with pytest.raises(
        ShortTextError, match=rf"has {fits} tokens .* not padded: give a longer text, or --prefill {fits}$"
    ):
        chat_prompt(source("Short."), tokenizer, 90)
    assert chat_prompt(source("Short."), tokenizer, fits) == whole(tokenizer, "Short.")


def test_a_length_that_the_template_alone_exceeds_is_refused_with_the_one_that_does_not():
    tokenizer = tiny_tokenizer(PARTS)
    alone = len(whole(tokenizer, ""))
    with pytest.raises(
        InputError, match=rf"takes {alone} tokens alone, --prefill is {alone}; raise it to more than {alone}"
    ):
        chat_prompt(source(), tokenizer, alone)
    assert len(chat_prompt(source(), tokenizer, alone + 1)) == alone + 1


BROKEN = {
    "raises": ("{{ raise_exception('a system message is required') }}", "a system message is required"),
    "does not parse": ("{% for m in messages %}", "end of template|endfor"),
    "calls what is not there": ("{{ messages[0]['content'].no_such() }}", "no_such"),
    "is unsafe": ("{{ messages.__class__.__mro__ }}", "unsafe|leaves the user's text out"),
    "divides by zero": ("{{ 1 // 0 }}", "zero"),
    "leaves the text out": ("<|user|>hello<|end|>", "leaves the user's text out"),
    "changes the text": ("{% for m in messages %}{{ m['content'] | upper }}{% endfor %}", "leaves the user's text out"),
    "prints parts": ("{{ m }}{{ messages[0]['content'][:9] }}", "leaves the user's text out"),
    "prints parts as JSON": (
        "{% if messages[0]['content'] is string %}none{% else %}{{ messages[0]['content'] | tojson }}{% endif %}",
        "leaves the user's text out",
    ),
    "says it twice": ("{% for m in messages * 2 %}{{ m['content'] }}{% endfor %}", "leaves the user's text out"),
}


@pytest.mark.parametrize(("template", "told"), BROKEN.values(), ids=BROKEN)
def test_a_template_that_cannot_be_used_is_one_line(template, told):
    with pytest.raises(InputError, match=rf"eel cannot be put into the model's chat template: .*({told})") as caught:
        chat_prompt(source(), tiny_tokenizer(template), 90)
    assert "\n" not in str(caught.value)


def test_a_short_text_that_also_stands_in_the_template_is_not_taken_for_the_users():
    dropping = "<|user|>tell me a story<|end|>"
    with pytest.raises(InputError, match="leaves the user's text out"):
        rendering(source("a"), tiny_tokenizer(dropping))
    assert rendering(source("s"), tiny_tokenizer(TRIMMED)).tail == " [/INST]"


def test_no_template_is_refused():
    for tokenizer in (None, tiny_tokenizer(None)):
        with pytest.raises(InputError, match="no chat template; leave --chat out"):
            template_sha256(tokenizer)


TALK = Source(
    "talk",
    messages=(
        Message("system", "Be brief."),
        Message("user", "Hello there."),
        Message("assistant", "Hello. What would you like to know?"),
        Message("user", TEXT),
        Message("assistant", "It is a fish, and nobody knew for long where it began."),
    ),
)


def test_of_a_conversation_the_longest_message_of_the_user_is_cut_and_its_reply_left_out():
    tokenizer = tiny_tokenizer()
    told = tokenizer.decode(chat_prompt(TALK, tokenizer, 120))
    assert told.startswith("<s><|system|>\nBe brief.<|end|>\n<|user|>\nHello there.<|end|>\n<|assistant|>\nHello.")
    assert told.endswith("<|end|>\n<|assistant|>\n")
    assert "nobody knew" not in told


def test_a_template_that_loses_the_system_message_is_refused():
    only_user = "{% for m in messages if m['role'] == 'user' %}{{ m['content'] }}{% endfor %}"
    with pytest.raises(InputError, match="leaves a message of the system out"):
        rendering(TALK, tiny_tokenizer(only_user))


def test_a_teacher_forced_reply_is_the_conversations_own():
    tokenizer = tiny_tokenizer()
    (ids,) = check(build("llama", vocab_size=VOCABULARY), tokenizer, [TALK], replace(OPTIONS, continuation="teacher"))
    own = tokenizer(TALK.messages[-1].text, add_special_tokens=False)["input_ids"]
    assert ids == chat_prompt(TALK, tokenizer, 90) + own[:5]
    with pytest.raises(InputError, match="eel has no reply to go on with"):
        reply_tokens(source(), tokenizer)
    with pytest.raises(InputError, match=rf"reply in talk has {len(own)} tokens, --decode is 99"):
        check(
            build("llama", vocab_size=VOCABULARY),
            tokenizer,
            [TALK],
            replace(OPTIONS, continuation="teacher", decode=99),
        )


def test_the_manifest_names_template_field_and_chat(tmp_path):
    tokenizer, model = tiny_tokenizer(), build("llama", vocab_size=VOCABULARY)
    sources = [replace(source(), field="body"), Source("ids", tokens=tuple(range(9, 99)))]
    paths = record(model, tokenizer, sources, OPTIONS, out=tmp_path)
    chatted, plain = (Trace.open(path) for path in paths)
    assert chatted.tokens[:90].tolist() == chat_prompt(source(), tokenizer, 90)
    assert chatted.entry("recorder")["options"]["chat"] is True
    assert chatted.entry("source")["field"] == "body"
    assert chatted.entry("source")["chat_template_sha256"] == template_sha256(tokenizer)
    assert chatted.entry("source")["text_sha256"] == source().sha256  # the text's own, without the template
    assert plain.entry("source")["chat_template_sha256"] is None
    assert plain.tokens[:90].tolist() == list(range(9, 99))


def test_resume_knows_another_template(tmp_path):
    model = build("llama", vocab_size=VOCABULARY)
    record(model, tiny_tokenizer(), [source()], OPTIONS, out=tmp_path)
    assert record(model, tiny_tokenizer(), [source()], OPTIONS, out=tmp_path, resume=True) == [tmp_path / "eel"]
    for tokenizer, options in ((tiny_tokenizer(TRIMMED), OPTIONS), (tiny_tokenizer(), replace(OPTIONS, chat=False))):
        with pytest.raises(InputError, match="recorded from another text, model or options"):
            record(model, tokenizer, [source()], options, out=tmp_path, resume=True)


def test_a_conversation_without_chat_is_refused():
    with pytest.raises(InputError, match="talk is a conversation; give --chat"):
        check(build("llama"), tiny_tokenizer(), [TALK], replace(OPTIONS, chat=False))


TOLD = {
    "the clock": ("{{ strftime_now('%d %B %Y') }}" + BLOCKS, TEXT, True, "today's date"),
    "two beginnings, of the template": (
        "{{ bos_token }}" + BLOCKS,
        TEXT,
        True,
        r"two beginning-of-sequence .*\(id 0\)",
    ),
    "two beginnings, of the text": (BLOCKS, "<s>" + TEXT, False, "eel begin with two"),
}


@pytest.mark.parametrize(("template", "text", "chat", "told"), TOLD.values(), ids=TOLD)
def test_what_is_odd_about_a_prompt_is_told(template, text, chat, told):
    model, options = build("llama", vocab_size=VOCABULARY), replace(OPTIONS, chat=chat)
    with pytest.warns(UserWarning, match=told):
        check(model, tiny_tokenizer(template), [source(text)], options)


def test_one_text_twice_is_told():
    model, sources = (
        build("llama", vocab_size=VOCABULARY),
        [source(), Source("again", TEXT), Source("more", "x" + TEXT)],
    )
    with pytest.warns(UserWarning, match=r"eel, again are the same 90 tokens: one article"):
        check(model, tiny_tokenizer(), sources, OPTIONS)


def test_a_tokenizer_that_knows_nothing_of_the_text_is_told_apart_from_a_short_text():
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    empty = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE()))
    unknown = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(BPE({"<unk>": 0}, [], unk_token="<unk>")), unk_token="<unk>"
    )
    model = build("llama")
    for tokenizer in (empty, unknown):
        for text in ("hello", TEXT):
            with pytest.raises(InputError, match=r"of eel \(\d+ characters\), so it has no vocabulary"):
                check(model, tokenizer, [source(text)], replace(OPTIONS, chat=False, prefill=4))


def test_a_tokenizer_that_fails_is_one_line():
    class Failing:
        def __call__(self, text, **options):
            raise BaseException_("a panic\nof the library")

    with pytest.raises(InputError, match="tokenizer cannot read eel \\(a panic of the library\\)"):
        check(build("llama"), Failing(), [source()], replace(OPTIONS, chat=False))


class BaseException_(Exception):
    pass


def test_conversations_in_json_lines(tmp_path):
    from qevict_diag.texts.read import read_inputs

    rows = [
        {"messages": [{"role": "user", "content": "one"}]},
        {"conversations": [{"from": "human", "value": "two"}, {"from": "gpt", "value": "well"}], "text": "rendered"},
        {"x": {"talk": [{"role": "user", "content": [{"type": "text", "text": "three"}]}]}},
        {"text": "four"},
    ]
    path = tmp_path / "talks.jsonl"

    def read(*some, **options):
        path.write_text("\n".join(map(json.dumps, some)))
        return read_inputs([path], **options)

    both = read(rows[0], rows[1], rows[3], chat=True)
    assert [s.messages for s in both[:2]] == [
        (Message("user", "one"),),
        (Message("user", "two"), Message("assistant", "well")),
    ]
    assert [(s.text, s.field) for s in both] == [(None, "messages"), (None, "conversations"), ("four", "text")]
    assert read(rows[2], field="x.talk", chat=True)[0].messages == (Message("user", "three"),)
    assert read(rows[1])[0].text == "rendered"
    with pytest.raises(
        InputError, match=r"line 1 has no text in field 'text' but a conversation in 'messages'; give --chat"
    ):
        read(rows[0])
    for wrong in (
        [{"role": "user"}],
        ["hello"],
        [{"role": "user", "content": [{"type": "image"}]}],
        [{"content": "x"}],
    ):
        with pytest.raises(InputError, match="line 1, message 1 is no text of someone"):
            read({"messages": wrong}, chat=True)
    with pytest.raises(InputError, match="without a user's message"):
        read({"messages": [{"role": "system", "content": "x"}]}, chat=True)
