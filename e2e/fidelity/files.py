"""Makes files of tokenizers in the formats of other programs, and encodes texts with those programs:
tiktoken, mistral_common and sentencepiece. Reads the question from stdin; writes the answer to stdout."""
import base64
import json
import os
import sys

import sentencepiece
import tiktoken
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
import mistral_common

question = json.load(sys.stdin)
texts = [base64.b64decode(text).decode("utf-8", "replace") for text in question["texts"]]
answers = []


def directory(name, files):
    path = os.path.join(question["directory"], name)
    os.makedirs(path, exist_ok=True)
    for file, data in files.items():
        with open(os.path.join(path, file), "wb") as out:
            out.write(data)
    return path


def answer(name, path, encode, reserved=()):
    asked = [text for text in texts if not any(token in text for token in reserved)]
    answers.append({"name": name, "directory": path, "texts": asked, "ids": [encode(text) for text in asked]})


# tiktoken, with the vocabulary of GPT-OSS: its ids are the ranks.
with open(question["vocabulary"]) as file:
    vocabulary = json.load(file)["model"]["vocab"]
printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
byte = {chr(b): b for b in printable}
byte.update({chr(256 + n): b for n, b in enumerate(b for b in range(256) if b not in printable)})
ranks = {bytes(byte[c] for c in token): rank for token, rank in vocabulary.items()}
lines = b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ranks.items())
base = len(ranks)
added = {base: "[BOS]", base + 2: "<|im_end|>"}
config = json.dumps({
    "tokenizer_class": "TikTokenTokenizer",
    "added_tokens_decoder": {str(n): {"content": token, "special": True} for n, token in added.items()},
}).encode()
for family, file, special in [
    ("kimi", "tiktoken.model", {added.get(n, f"<|reserved_token_{n}|>"): n for n in range(base, base + 256)}),
    ("o200k", "o200k_harmony.tiktoken", None),
    ("qwen", "qwen.tiktoken", {"<|endoftext|>": base, "<|im_start|>": base + 1, "<|im_end|>": base + 2}),
]:
    if special is None:  # the encoding of tiktoken itself, which would otherwise download its ranks
        import tiktoken_ext.openai_public as public
        public.load_tiktoken_bpe = lambda *_, **__: ranks
        special = public.o200k_harmony()["special_tokens"]
    encoding = tiktoken.Encoding(name=family, pat_str=question["patterns"][family], mergeable_ranks=ranks, special_tokens=special)
    path = directory(family, {file: lines, **({"tokenizer_config.json": config} if family == "kimi" else {})})
    answer(f"tiktoken, {family}", path, lambda text: encoding.encode(text, allowed_special="all"), ["<|extra_"])

# The files of Mistral, which its package has.
data = os.path.join(os.path.dirname(mistral_common.__file__), "data")
for file in sorted(os.listdir(data)):
    with open(os.path.join(data, file), "rb") as f:
        content = f.read()
    if file.startswith("tekken"):
        tekken = Tekkenizer.from_file(os.path.join(data, file))
        reserved = [token["token_str"] for token in Tekkenizer.DEPRECATED_SPECIAL_TOKENS] + ["<SPECIAL_"]
        answer(file, directory(file, {"tekken.json": content}), lambda text: tekken.encode(text, bos=False, eos=False), reserved)
    elif ".model" in file:
        model = sentencepiece.SentencePieceProcessor(model_proto=content)
        reserved = [model.id_to_piece(n) for n in range(len(model)) if model.is_control(n) or model.is_unknown(n) or model.is_byte(n)]
        answer(file, directory(file, {"tokenizer.model": content}), model.encode, reserved)

# Small SentencePiece models with other options.
corpus = os.path.join(question["directory"], "corpus")
with open(corpus, "w") as out:
    out.write("\n".join(text.replace("\0", "") for text in texts))
for n, options in enumerate([
    {"model_type": "unigram"},
    {"model_type": "unigram", "byte_fallback": True, "normalization_rule_name": "nmt_nfkc_cf"},
    {"model_type": "unigram", "normalization_rule_name": "identity", "add_dummy_prefix": False, "remove_extra_whitespaces": False},
    {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False, "split_digits": True},
    {"model_type": "bpe", "normalization_rule_name": "nfkc", "user_defined_symbols": ["the", "()"]},
]):
    prefix = os.path.join(question["directory"], f"trained{n}")
    sentencepiece.SentencePieceTrainer.train(
        input=corpus, model_prefix=prefix, vocab_size=8000, character_coverage=0.99, max_sentence_length=1 << 20, hard_vocab_limit=False, minloglevel=2, **options)
    with open(prefix + ".model", "rb") as f:
        content = f.read()
    model = sentencepiece.SentencePieceProcessor(model_proto=content)
    name = f"sentencepiece, {options['model_type']}, {options.get('normalization_rule_name', 'nmt_nfkc')}"
    answer(name, directory(f"trained{n}", {"tokenizer.model": content}), model.encode, ["<s>", "</s>", "<unk>", "<0x"])

json.dump(answers, sys.stdout)
