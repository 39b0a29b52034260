"""What the composing thread may do to a page."""

import asyncio

from music_transformer.web.studio import Page


def test_what_is_told_after_the_server_has_ended_is_lost() -> None:
    loop = asyncio.new_event_loop()
    page = Page(loop)
    loop.close()
    page.tell({"type": "take"})
