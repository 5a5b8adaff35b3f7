"""A toy tokenizer of words, with a chat template."""

from __future__ import annotations

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

__all__ = ["tokenizer_of_words"]

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'narrator' %}{{ raise_exception('no narrators') }}{% endif %}"
    "<s> {{ m.role }} : {{ m.content }} </s> {% endfor %}{% if add_generation_prompt %}assistant :{% endif %}"
)
WORDS = "<unk> <s> </s> user assistant system : what is two and ? A . B four five . be brief narrator"


def tokenizer_of_words(template: str | None = TEMPLATE) -> PreTrainedTokenizerFast:
    words = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(dict.fromkeys(WORDS.split()))}, unk_token="<unk>")
    )
    words.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
    words.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="</s>", chat_template=template)
