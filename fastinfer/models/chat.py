"""Texts and messages to prompts, by the rules that come with the model's tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from transformers import PreTrainedTokenizerBase

from fastinfer.config import ConfigError

ROLES = ("system", "user", "assistant")


def has_template(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the model was trained on chats, as far as its files say."""
    return bool(getattr(tokenizer, "chat_template", None))


def prompt_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids of a text, with what the tokenizer puts in front of one.

    A text that already begins with the beginning-of-text token gets no second one.
    """
    ids: list[int] = list(tokenizer(text)["input_ids"])
    first = tokenizer.bos_token_id
    doubled = first is not None and ids[:2] == [first, first]
    if doubled and list(tokenizer("")["input_ids"])[:1] == [first]:
        return ids[1:]
    return ids


def chat_ids(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Mapping[str, str]]
) -> list[int]:
    """Token ids of a conversation, up to where the model's answer begins.

    A message is `{"role": ..., "content": ...}`. The template alone says whether a text begins with
    the beginning-of-text token, so there is never a second one. What looks like a control token
    inside a message is text: nobody's message can speak as another role. Raises `ConfigError` for
    a model without a template and for messages that it refuses.
    """
    if not has_template(tokenizer):
        raise ConfigError(
            "messages",
            "this model has no chat template: it continues texts; give it a prompt instead, or "
            "load an instruct model",
        )
    plain = [_message(index, message) for index, message in enumerate(messages)]
    if not plain:
        raise ConfigError("messages", "is empty; give at least one message")
    template: Any = tokenizer.apply_chat_template
    try:
        ids = template(
            plain,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
            sanitize_control_tokens=True,
        )
    except (jinja2.TemplateError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:160]
        raise ConfigError(
            "messages", f"the model's chat template refuses them: {reason}"
        ) from error
    return list(ids)


def _message(index: int, message: object) -> dict[str, str]:
    """One message, checked."""
    if not isinstance(message, Mapping):
        raise ConfigError("messages", f"number {index} must have a role and a content")
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise ConfigError(
            "messages", f"the role of number {index} must be one of {', '.join(ROLES)}"
        )
    if not isinstance(content, str):
        raise ConfigError("messages", f"the content of number {index} must be a text")
    return {"role": str(role), "content": content}
