"""``appliance chat``: the loop between a person's lines and the chat."""

from __future__ import annotations

from collections.abc import Callable

from appliance.frontends.terminal.chat import Chat
from appliance.frontends.terminal.reading import Reader, read_message


def converse(chat: Chat, reader: Reader, tell: Callable[[str], None]) -> None:
    """Read and answer until goodbye, Ctrl-D or the end of the input.

    Args:
        chat: what handles each message.
        reader: where they come from.
        tell: shows a label by its code (how to leave, goodbye).
    """
    tell("chat_hello")
    while True:
        try:
            message = read_message(reader)
        except EOFError:
            break
        except KeyboardInterrupt:
            tell("chat_how_to_leave")
            continue
        if not chat.handle(message):
            break
    tell("chat_bye")
