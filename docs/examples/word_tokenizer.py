"""Writes a tokenizer.json whose words are w0, w1 ...: for models with drawn weights, which have no words.

    python docs/examples/word_tokenizer.py [COUNT [FILE]]      # 300 words, tokenizer.json
"""

from __future__ import annotations

import sys

import tokenizers

count, path = [*sys.argv[1:], *["300", "tokenizer.json"][len(sys.argv) - 1 :]]
words = {f"w{number}": number for number in range(int(count))}
made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
made.save(path)
print(path)
