"""Trains small tokenizers with the models and pipelines of embedding models, and writes them as files.
Reads the question from stdin; writes the names and directories of the files to stdout."""
import base64
import collections
import json
import os
import re
import sys

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

question = json.load(sys.stdin)
texts = [base64.b64decode(text).decode("utf-8", "replace").replace("\0", "")[:400] for text in question["texts"]]
common = {char for char, _ in collections.Counter("".join(texts)).most_common(900)}  # others are unknown to the tokenizers
texts = [re.sub(r"(\S{30})\S+", r"\1", "".join(char for char in text if char in common)) for text in texts]
answers = []


def field(data, number):
    """Returns the last field of a message that has bytes and a number."""
    def varint(at):
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                return value, at
    at, found = 0, b""
    while at < len(data):
        tag, at = varint(at)
        if tag & 7 == 2:
            size, at = varint(at)
            if tag >> 3 == number:
                found = data[at:at + size]
            at += size
        elif tag & 7 == 0:
            _, at = varint(at)
        else:
            at += {1: 8, 5: 4}[tag & 7]
    return found


def charsmap(rule):
    """Returns the normalization of SentencePiece with a name."""
    corpus = os.path.join(question["directory"], "corpus")
    with open(corpus, "w") as out:
        out.write("\n".join(texts[:500]))
    prefix = os.path.join(question["directory"], "rule")
    sentencepiece.SentencePieceTrainer.train(
        input=corpus, model_prefix=prefix, vocab_size=2000, hard_vocab_limit=False, character_coverage=0.98,
        normalization_rule_name=rule, minloglevel=2)
    with open(prefix + ".model", "rb") as f:
        return normalizers.Precompiled(field(field(f.read(), 3), 2))


def write(name, tokenizer, normalizer, words, decoder, frame, change=lambda file: None):
    tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = normalizer, words, decoder
    if isinstance(tokenizer.model, models.WordPiece):
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        trainer = trainers.WordPieceTrainer(
            vocab_size=4000, special_tokens=special, limit_alphabet=600, show_progress=False,
            continuing_subword_prefix=tokenizer.model.continuing_subword_prefix)
    else:
        special = ["<s>", "<pad>", "</s>", "<unk>"]
        trainer = trainers.UnigramTrainer(vocab_size=4000, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    if isinstance(tokenizer.model, models.Unigram):
        tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    tokenizer.post_processor = frame(tokenizer.token_to_id)
    file = json.loads(tokenizer.to_str())
    change(file)
    path = os.path.join(question["directory"], name.replace(" ", "-"))
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "tokenizer.json"), "w") as out:
        json.dump(file, out, ensure_ascii=False)
    answers.append({"name": name, "directory": path})


def template(first, last):
    return lambda id: processors.TemplateProcessing(single=f"{first} $A {last}", special_tokens=[(t, id(t)) for t in (first, last)])


def bytes_fall_back(file):
    """Gives the vocabulary a token for every byte but one."""
    model = file["model"]
    model["byte_fallback"] = True
    model["vocab"] += [[f"<0x{b:02X}>", 0.0] for b in range(256) if b != 0xF3]
    size = len(model["vocab"])
    for n, token in enumerate(token for token in file["added_tokens"] if token["content"] == "<mask>"):
        token["id"] = size + n


nmt_nfkc, nmt_nfkc_cf = charsmap("nmt_nfkc"), charsmap("nmt_nfkc_cf")
spaces = normalizers.Replace(Regex(" {2,}"), " ")
pair = lambda id: [(token, id(token)) for token in ("[SEP]", "[CLS]")]

write("WordPiece, BERT uncased", Tokenizer(models.WordPiece(unk_token="[UNK]")), normalizers.BertNormalizer(),
      pre_tokenizers.BertPreTokenizer(), decoders.WordPiece(), template("[CLS]", "[SEP]"))
write("WordPiece, BERT cased", Tokenizer(models.WordPiece(unk_token="[UNK]")), normalizers.BertNormalizer(strip_accents=False, lowercase=False),
      pre_tokenizers.BertPreTokenizer(), decoders.WordPiece(cleanup=False), lambda id: processors.BertProcessing(*pair(id)))
write("WordPiece, MPNet", Tokenizer(models.WordPiece(unk_token="[UNK]")), normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True),
      pre_tokenizers.BertPreTokenizer(), decoders.WordPiece(), lambda id: processors.RobertaProcessing(*pair(id)))
write("WordPiece, other options", Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=9, continuing_subword_prefix="@@")),
      normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]),
      pre_tokenizers.Sequence([pre_tokenizers.CharDelimiterSplit(" "), pre_tokenizers.Punctuation("merged_with_previous")]),
      decoders.WordPiece(prefix="@@"), template("[CLS]", "[SEP]"))
write("Unigram, T5", Tokenizer(models.Unigram()),
      normalizers.Sequence([nmt_nfkc, normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")]),
      pre_tokenizers.Metaspace(), decoders.Metaspace(), template("<s>", "</s>"))
write("Unigram, XLM-R", Tokenizer(models.Unigram()), normalizers.Sequence([nmt_nfkc, spaces]),
      pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]), decoders.Metaspace(), template("<s>", "</s>"))
write("Unigram, ALBERT", Tokenizer(models.Unigram()),
      normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), nmt_nfkc]),
      pre_tokenizers.Metaspace(), decoders.Metaspace(), template("<s>", "</s>"))
write("Unigram, DeBERTa-v2", Tokenizer(models.Unigram()), normalizers.Sequence([normalizers.Strip(), nmt_nfkc_cf, spaces]),
      pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation("isolated")]), decoders.Metaspace(), template("<s>", "</s>"))
write("Unigram, byte fallback", Tokenizer(models.Unigram()), normalizers.Nmt(),
      pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
      decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
      template("<s>", "</s>"), bytes_fall_back)
write("Unigram, Metaspace never", Tokenizer(models.Unigram()), normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), spaces, normalizers.Lowercase()]),
      pre_tokenizers.Metaspace(prepend_scheme="never"), decoders.Metaspace(prepend_scheme="never"), template("<s>", "</s>"))

json.dump(answers, sys.stdout)
