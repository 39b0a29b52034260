"""Host and Origin: who is answered, and who is not."""

import pytest

from tests.web.conftest import Client

PAGES = "/api/pages"


def test_the_page_and_its_files_are_served_under_a_policy_that_allows_nothing_foreign(
    client: Client,
) -> None:
    status, page, headers = client.ask("GET", "/")
    assert status == 200
    assert b"<title>Music Transformer</title>" in page
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "http" not in headers["content-security-policy"]
    status, script, headers = client.ask("GET", "/static/main.js")
    assert status == 200
    assert headers["content-type"].startswith("text/javascript")
    assert b"http://" not in script


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "127.0.0.1", "[::1]", "127.0.0.9"])
def test_names_of_this_machine_are_answered(client: Client, name: str) -> None:
    status, _, _ = client.ask("GET", "/", Host=f"{name}:{client.port}")
    assert status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "192.168.0.7",
        "localhost.evil",
        "localhost:80.evil",
        "[::1].evil.example",
        "[::1]evil:80",
        "[::1",
        "",
    ],
)
def test_a_rebound_name_is_refused(client: Client, host: str) -> None:
    status, told, _ = client.ask("GET", "/", Host=host)
    if host == "":
        assert status in (400, 403)
    else:
        assert status == 403
        assert "no name of this server" in told["error"]


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "http://localhost:{port}",
        "file://127.0.0.1:{port}",
        "http://127.0.0.1:{port}.evil.example",
    ],
)
def test_a_request_of_another_page_is_refused(client: Client, origin: str) -> None:
    status, told, _ = client.ask("POST", PAGES, Origin=origin.format(port=client.port))
    assert status == 403
    assert "another page" in told["error"]


def test_a_change_without_an_origin_is_refused(client: Client) -> None:
    status, told, _ = client.ask("POST", PAGES, Origin="")
    assert status == 403
    assert "Origin" in told["error"]


def test_reading_across_sites_is_refused_but_for_the_page_itself(client: Client) -> None:
    foreign = {"Sec_Fetch_Site": "cross-site"}
    assert client.ask("GET", "/static/main.js", **foreign)[0] == 403
    assert client.ask("GET", "/", **foreign)[0] == 200
    assert client.ask("GET", "/static/main.js", Sec_Fetch_Site="same-origin")[0] == 200


def test_a_name_can_be_allowed(serve: object) -> None:
    assert callable(serve)
    client = serve(allow_hosts=["studio.example"])
    assert client.ask("GET", "/", Host="studio.example")[0] == 200
    assert client.ask("GET", "/", Host="other.example")[0] == 403


def test_on_every_address_numbers_are_names_of_this_machine(serve: object) -> None:
    assert callable(serve)
    client = serve(host="0.0.0.0")
    assert client.ask("GET", "/", Host="192.168.0.7:80")[0] == 200
    assert client.ask("GET", "/", Host="other.example")[0] == 403
