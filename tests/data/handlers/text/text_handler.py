from ts.torch_handler.text_classifier import TextClassifier


class Reviews(TextClassifier):
    ngrams = 1
