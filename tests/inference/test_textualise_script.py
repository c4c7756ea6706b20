"""The script: convert, check, and what a person is told."""

import pytest

from gnnrag.cli import textualise
from gnnrag.errors import GnnragError

KB = "Night Harbour|directed_by|Vera Lind\nNight Harbour|release_year|1971\nOh! Fog|directed_by|Vera Lind\n"


def test_convert_check_and_what_is_refused(tmp_path, capsys):
    (tmp_path / "kb").mkdir()
    (tmp_path / "kb" / "kb.txt").write_text(KB, "utf-8")
    out = tmp_path / "out"
    command = ["configs/textualise/metaqa.yaml", f"path={tmp_path / 'kb'}", f"out={out}", "write=template"]
    assert textualise.main(command) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[-1] == str(out) and "articles" in shown
    assert textualise.main(["check", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "4 articles, markup valid; 0 leave a neighbour out" in shown and "directed_by, told of its head" in shown
    lines = (out / "marked.jsonl").read_text("utf-8").splitlines(keepends=True)
    (out / "marked.jsonl").write_text(lines[0].replace("[1971]", "<1971>") + "".join(lines[1:]), "utf-8")
    with pytest.raises(GnnragError, match="article 'Night Harbour': <1971> is not the topic"):
        textualise.main(["check", str(out)])
    with pytest.raises(GnnragError, match=r"usage: .*check DIR"):
        textualise.main(["check"])
    with pytest.raises(GnnragError, match=r"unknown setting 'write\.methd'"):
        textualise.main([*command, "write.methd=template"])
    with pytest.raises(GnnragError, match=r"write\.method='?foo'?.*template, prompted"):
        textualise.main([*command, "write=foo"])
    missing = [command[0], f"path={tmp_path / 'nope'}", f"out={tmp_path / 'new'}"]
    with pytest.raises(GnnragError, match=r"nope: holds no kb\.txt; path=FOLDER .*MetaQA.*gnnrag fetch.*README\.md"):
        textualise.main(missing)
    with pytest.raises(GnnragError, match=r"sample is no folder that textualise\.py wrote: it lacks nodes\.jsonl"):
        textualise.main(["check", "data/sample"])
