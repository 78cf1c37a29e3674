import jinja2
import pytest

from torchstone.report.page import asset, for_script, policy, templates


def test_a_policy_names_each_script_by_its_content() -> None:
    assert policy("a").count("sha256-") == 1
    assert policy("a", "b").count("sha256-") == 2
    assert policy("a") != policy("b")
    assert "unsafe-inline" not in policy("a").partition("style-src")[0]


def test_json_for_a_script_cannot_end_it() -> None:
    text = for_script({"name": "</script><!--"})

    assert "<" not in text
    assert "\\u003c/script" in text


def test_templates_escape_and_refuse_unknown_names() -> None:
    assert templates().from_string("{{ name }}").render(name="<b>") == "&lt;b&gt;"
    with pytest.raises(jinja2.UndefinedError):
        templates().from_string("{{ missing }}").render()


def test_assets_are_files() -> None:
    assert asset("m4.js").startswith("/*")
