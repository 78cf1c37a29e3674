from torchstone.report.page import plotly_source


def test_the_library_comes_from_the_installed_package() -> None:
    source = plotly_source()

    assert source is not None
    assert "Plotly" in source
