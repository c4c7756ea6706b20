"""Why a model of the hub is not there, in one line that says what to do."""

from __future__ import annotations

import pytest
from huggingface_hub import errors

from gnnrag.errors import ConfigError
from gnnrag.llm.folders import find_model
from tests.helpers.each import each


def raising(kind: type[Exception]) -> Exception:
    """Return an error of the hub as it comes: several lines long. Its constructors ask for a response."""
    error = kind.__new__(kind)
    error.args = ("404 Client Error.\n\nEntry not found for url: https://hub/api\nPlease make sure ...",)
    return error


@each(
    "kind, is_offline, message",
    [
        (errors.HFValidationError, False, "no hub name either, which is OWNER/NAME"),
        (errors.RepositoryNotFoundError, False, "the hub has no a/b, or hides it from you: check the spelling"),
        (errors.GatedRepoError, False, "a/b on the hub is for those whom its owner lets in"),
        (errors.RevisionNotFoundError, False, "a/b on the hub has no revision 'v9'"),
        (errors.LocalEntryNotFoundError, False, "the hub cannot be reached): check the spelling, or fetch it first"),
        (errors.OfflineModeIsEnabled, False, "the hub cannot be reached): check the spelling, or fetch it first"),
        (errors.LocalEntryNotFoundError, True, "before (HF_HUB_OFFLINE is set)"),
        (OSError, False, "the hub did not give it (OSError): "),
    ],
)
def test_a_model_that_the_hub_does_not_give(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception], is_offline: bool, message: str
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise raising(kind)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fails)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", is_offline)
    with pytest.raises(ConfigError) as caught:
        find_model("a/b@v9", None, "hf")
    text = str(caught.value)
    assert text.startswith("model 'a/b@v9' is no folder here, and ") and message in text and "\n" not in text
