from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.report.browser import chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as one:
        yield one
