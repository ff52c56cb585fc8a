"""A number in words in, the numbers that follow it out, each sent as soon as the net has said it."""

import torch
from ts.handler_utils.utils import send_intermediate_predict_response
from ts.torch_handler.base_handler import BaseHandler
from ts.utils.util import PredictionException
from words import END, NEXT, WORDS, encode

COUNT = 5  # numbers in an answer
LONGEST = 8  # words in a number


class CountingHandler(BaseHandler):
    """The answers of a batch go on in step: one number of each, then the next of each."""

    def handle(self, data, context):
        """Send all but the last number as pieces of the answer, and return the last."""
        numbers = [listen(row.get("data") or row.get("body")) for row in data]
        for index in range(len(numbers)):
            context.set_response_content_type(index, "text/plain")
        for _ in range(COUNT - 1):
            numbers = [self.follow(number) for number in numbers]
            pieces = [" ".join(number) + "\n" for number in numbers]
            send_intermediate_predict_response(pieces, context.request_ids, "Prediction success", 200, context)
        return [" ".join(self.follow(number)) + "\n" for number in numbers]

    @torch.inference_mode()
    def follow(self, number):
        """Let the net say the number that follows, word by word."""
        words, state = [], None
        heard = encode([*number, NEXT])
        while len(words) < LONGEST:
            logits, state = self.model(torch.tensor([heard], device=self.device), state)
            heard = [logits[0, -1].argmax().item()]
            if WORDS[heard[0]] == END:
                break
            words.append(WORDS[heard[0]])
        return words


def listen(body):
    """Return a request's words; text/plain arrives as str, anything else as a bytearray."""
    text = body if isinstance(body, str) else (body or b"").decode()
    words = text.lower().replace("-", " ").split()
    strange = [word for word in words if word not in WORDS]
    if strange or not words:
        raise PredictionException(f"say a number in words; not in one: {', '.join(strange) or 'nothing'}", 400)
    return words
