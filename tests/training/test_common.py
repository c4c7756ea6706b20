"""What the training scripts share."""

from __future__ import annotations

from gnnrag.cli.training import report_table


def test_a_set_without_a_metric_keeps_the_columns_of_the_others() -> None:
    scores = {"mrr": 0.5, "mrr_ci": [0.4, 0.6]}
    metrics = {
        "a": {"questions": 3, "recall@5": 0.25, "recall@5_ci": [0.125, 0.375], **scores},
        "b": {"questions": 4, **scores},
        "folds": [0],
    }
    lines = report_table(metrics, ("recall@5", "node_f1", "mrr")).splitlines()
    cells = [[cell.strip() for cell in line.replace("┃", "│").split("│")[1:-1]] for line in lines]
    assert ["set", "questions", "recall@5", "mrr"] in cells
    assert ["a", "3", "0.250 [0.125, 0.375]", "0.500 [0.400, 0.600]"] in cells
    assert ["b", "4", "-", "0.500 [0.400, 0.600]"] in cells
