"""Parts of a user's own: what `tests/test_own_parts.py` puts into a folder outside of the package."""

RETRIEVER = '''
import numpy as np

from gnnrag.retrievers.base import Retriever, rank_passages


class TitleMatch(Retriever):
    """Passages by the words of their titles that the query has."""

    weight: float = 1.0
    reads = ("passages",)

    def setup(self):
        self.titles = [set(p.title.casefold().split()) for p in self.index.passages]

    def retrieve(self, queries):
        words = [set(q.text.casefold().replace("?", "").split()) for q in queries]
        scores = [np.array([self.weight * len(w & title) for title in self.titles]) for w in words]
        return [rank_passages(s, self.index.ids, q.top_k, "title") for s, q in zip(scores, queries)]
'''
METHOD = '''
from gnnrag.methods.base import Method, State
from gnnrag.types import Evidence, Query


class Twice(Method):
    """The question, then the question with the best passage's title."""

    role_names = ()

    def __init__(self, index, roles, settings):
        self.index = index

    async def start(self, question, session):
        return State(question, session)

    async def propose(self, state):
        more = self.index.lookup(state.pool.top(1))[0].title if state.round else ""
        return [Query(f"{state.question.text} {more}".strip())] if state.round < 2 else []

    async def absorb(self, state, queries, rankings):
        for ranking in rankings:
            state.pool.merge(ranking, "minmax_full")

    async def select(self, state):
        return Evidence(state.pool.ranked(), state.pool.top(3))
'''
ROLE = '''
from gnnrag.roles.base import Answer, Role


class TitleReader(Role):
    """Answers with the title of the best passage."""

    def __init__(self, index, settings):
        pass

    async def __call__(self, task, session):
        return Answer(task.passages[0].title)
'''
