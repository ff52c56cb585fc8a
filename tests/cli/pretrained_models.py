"""Small random Hugging Face models of the supported tasks, and what transformers' own pipelines say about the samples.

Run as a program with a folder, since importing transformers takes seconds: each model gets a folder below it, and
`expected.json` has the responses by their names.
"""

import json
import os
import sys
import wave
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers as hf

SAMPLES = Path(__file__).parents[2] / "templates" / "init"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "the", "cat", "sat", "on", "mat", "in", "paris", "where", "did", "dog", ".", "?"]
TEXT = (SAMPLES / "hugging_face/text.txt").read_text()
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
BERT = {**SMALL, "vocab_size": len(WORDS), "max_position_embeddings": 64}
LABELS = {"id2label": {0: "O", 1: "PLACE", 2: "ANIMAL"}, "label2id": {"O": 0, "PLACE": 1, "ANIMAL": 2}}
POOLING = {"word_embedding_dimension": 16, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
MODULES = ("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")


def tokenizer(folder: Path) -> hf.PreTrainedTokenizerBase:
    made = hf.BertTokenizer(vocab={word: index for index, word in enumerate(WORDS)})
    made.save_pretrained(folder)
    return made


def text_models(folder: Path) -> dict[str, object]:
    heads = {
        "text-classification": hf.BertForSequenceClassification,
        "token-classification": hf.BertForTokenClassification,
        "question-answering": hf.BertForQuestionAnswering,
        "fill-mask": hf.BertForMaskedLM,
        "feature-extraction": hf.BertModel,
    }
    expected: dict[str, object] = {}
    for task, head in heads.items():
        labels = LABELS if task.endswith("classification") else {}
        model = head(hf.BertConfig(**BERT, **labels)).eval()
        model.save_pretrained(folder / task)
        words = tokenizer(folder / task)
        if task == "question-answering":
            expected[task] = answer(model, words)
        elif task == "feature-extraction":
            tokens = words([TEXT], return_tensors="pt")
            vector = model(**tokens).last_hidden_state.mean(dim=1)
            expected[task] = torch.nn.functional.normalize(vector, dim=1)[0].tolist()
        else:
            options = {"text-classification": {"top_k": None}, "fill-mask": {"top_k": 5}}.get(task, {})
            text = (SAMPLES / "hugging_face/mask.txt").read_text() if task == "fill-mask" else TEXT
            expected[task] = hf.pipeline(task, model=model, tokenizer=words, **options)(text)
    folder /= "feature-extraction"
    rows = [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (kind, path) in enumerate(MODULES)]  # fmt: skip
    (folder / "modules.json").write_text(json.dumps(rows))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(POOLING))
    return expected


def answer(model: hf.PreTrainedModel, words: hf.PreTrainedTokenizerBase) -> dict[str, object]:
    """Return the likeliest span by trying all of them."""
    asked = json.loads((SAMPLES / "hugging_face/question.json").read_text())
    tokens = words(asked["question"], asked["context"], return_tensors="pt", return_offsets_mapping=True)
    places = tokens.pop("offset_mapping")[0].tolist()
    inside = [i for i, part in enumerate(tokens.sequence_ids(0)) if part == 1]
    output = model(**tokens)
    start, end = output.start_logits[0, inside].softmax(0).tolist(), output.end_logits[0, inside].softmax(0).tolist()
    spans = [(start[i] * end[j], inside[i], inside[j]) for i in range(len(inside)) for j in range(i, len(inside))]
    score, first, last = max(spans)
    begin, stop = places[first][0], places[last][1]
    return {"answer": asked["context"][begin:stop], "score": score, "start": begin, "end": stop}


def generator(folder: Path) -> str:
    config = hf.GPT2Config(vocab_size=len(WORDS), n_embd=16, n_layer=1, n_head=2, n_positions=40, bos_token_id=2,
                           eos_token_id=None, pad_token_id=0)  # fmt: skip
    model, words = hf.GPT2LMHeadModel(config).eval(), tokenizer(folder)
    model.generation_config.suppress_tokens = [*range(len(SPECIAL))]
    model.save_pretrained(folder)
    tokens = words(TEXT, return_tensors="pt")
    made = model.generate(
        tokens["input_ids"], attention_mask=tokens["attention_mask"], max_new_tokens=20, do_sample=False
    )
    return words.decode(made[0, tokens["input_ids"].shape[1] :], skip_special_tokens=True)


def decoder(folder: Path) -> object:
    """Save a classifier whose tokenizer has no token for padding."""
    config = hf.GPT2Config(vocab_size=len(WORDS), n_embd=16, n_layer=1, n_head=2, n_positions=64, **LABELS)
    model, vocabulary = hf.GPT2ForSequenceClassification(config).eval(), {word: i for i, word in enumerate(WORDS)}
    words = hf.BertTokenizer(vocab=vocabulary, pad_token=None, eos_token="[SEP]")
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return hf.pipeline("text-classification", model=model, tokenizer=words, top_k=None)(TEXT)


def classifier(folder: Path) -> object:
    """Save a model that gives each label a score of its own."""
    from PIL import Image

    kind = {"problem_type": "multi_label_classification", **LABELS}
    model = hf.ViTForImageClassification(hf.ViTConfig(**SMALL, image_size=32, patch_size=8, **kind)).eval()
    model.save_pretrained(folder)
    processor = hf.ViTImageProcessorPil(size={"height": 32, "width": 32})
    processor.save_pretrained(folder)
    return hf.pipeline("image-classification", model=model, image_processor=processor)(
        Image.open(SAMPLES / "red.png").convert("RGB")
    )


def speech(folder: Path) -> dict[str, object]:
    with wave.open(str(SAMPLES / "hugging_face/tone.wav")) as file:
        low = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2").astype("float32") / 32768
    row = torch.from_numpy(low)[None, None, None]
    size = (1, 2 * len(low))
    sound = torch.nn.functional.interpolate(row, size=size, mode="bilinear", antialias=True).flatten().numpy()
    letters = {letter: index for index, letter in enumerate(["<pad>", "<s>", "</s>", "<unk>", "|", "a", "b", "c"])}
    (folder / "ctc").mkdir()
    (folder / "ctc" / "vocab.json").write_text(json.dumps(letters))
    config = hf.Wav2Vec2Config(vocab_size=8, **SMALL, conv_dim=(8, 8), conv_stride=(5, 2), conv_kernel=(10, 3),
                               num_feat_extract_layers=2, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2,
                               pad_token_id=0)  # fmt: skip
    ctc, spelling = hf.Wav2Vec2ForCTC(config).eval(), hf.Wav2Vec2CTCTokenizer(str(folder / "ctc" / "vocab.json"))
    ctc.save_pretrained(folder / "ctc")
    hearing = hf.Wav2Vec2FeatureExtractor()
    hf.Wav2Vec2Processor(hearing, spelling).save_pretrained(folder / "ctc")
    features = hearing([sound], sampling_rate=16000, padding=True, return_tensors="pt")
    expected: dict[str, object] = {"ctc": {"text": spelling.batch_decode(ctc(**features).logits.argmax(2))[0].strip()}}
    settings = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16,
                "encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_target_positions": 20,
                "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 2,
                "suppress_tokens": None, "begin_suppress_tokens": None}  # fmt: skip
    whisper = hf.WhisperForConditionalGeneration(hf.WhisperConfig(vocab_size=len(WORDS), **settings)).eval()
    whisper.save_pretrained(folder / "whisper")
    listening, words = hf.WhisperFeatureExtractor(), tokenizer(folder / "whisper")
    listening.save_pretrained(folder / "whisper")
    made = whisper.generate(**listening([sound], sampling_rate=16000, return_tensors="pt"))
    expected["whisper"] = {"text": words.decode(made[0], skip_special_tokens=True).strip()}
    return expected


def shards(folder: Path) -> None:
    """Save the text classifier in several files."""
    model = hf.BertForSequenceClassification.from_pretrained(folder / "text-classification")
    model.save_pretrained(folder / "shards", max_shard_size="4KB")
    tokenizer(folder / "shards")
    assert len(list(folder.glob("shards/model-*-of-*.safetensors"))) > 1


def main(folder: Path) -> None:
    torch.manual_seed(0)
    with torch.inference_mode():
        expected = text_models(folder)
        shards(folder)
        expected["shards"] = expected["text-classification"]
        expected["text-generation"] = generator(folder / "text-generation")
        expected["decoder"] = decoder(folder / "decoder")
        expected["image-classification"] = classifier(folder / "image-classification")
        expected |= speech(folder)
    (folder / "expected.json").write_text(json.dumps(expected, default=float))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
