"""The package's names, each from its own file."""

import pytest

import bertzoo as bz


@pytest.mark.once
def test_each_name_is_there_and_described():
    pytest.importorskip("matplotlib")
    for name in bz.analysis.__all__:
        assert getattr(bz.analysis, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = bz.analysis.nothing
