"""Stream the numbers that follow a number in words."""

import torch
from ts.handler_utils.utils import send_intermediate_predict_response
from ts.torch_handler.base_handler import BaseHandler
from ts.utils.util import PredictionException
from words import END, NEXT, WORDS, encode

COUNT = 5  # numbers in a response
LONGEST = 8  # words in a number


class CountingHandler(BaseHandler):
    """Stream one number of each response of the batch, then the next number of each."""

    def handle(self, data, context):
        """Send all but the last number as chunks, and return the last one."""
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
        """Return the words of the next number, predicted word by word."""
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
    """Return a request's words; text/plain arrives as str, other types as bytearray."""
    text = body if isinstance(body, str) else (body or b"").decode()
    words = text.lower().replace("-", " ").split()
    strange = [word for word in words if word not in WORDS]
    if strange or not words:
        raise PredictionException(f"say a number in words; not in one: {', '.join(strange) or 'nothing'}", 400)
    return words
