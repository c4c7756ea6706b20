// What the blocks of a story are called, and what they mean in one line.
const WORDS = {
  rewrite: ["The question by itself", "A follow-up, with what went before put into its words."],
  merge: [
    "What the round changed",
    "All passages found so far form one pool, best first. Promoted: came into its first 10. Cut: fell out of them.",
  ],
  cut: [
    "What is kept in the end",
    "A verifier picks passages that belong to the reasoning and moves them to the front (promoted); what scores too low is cut.",
  ],
  mgranrag: [
    "How evidence reordered the passages",
    "First the order of the search, then the order after walking the graph from the evidence that was read.",
  ],
  evidence: ["What the reader is given", "The passages from which the answer is written, in their order."],
  answer: ["The answer", "What the reader wrote, and the passages it leaned on."],
  chain: [
    "Reasoning chain",
    "Facts from the passages, joined into a line of reasoning; numbers in brackets are the passages' ranks.",
  ],
  decomposition: [
    "The question in parts",
    "Sub-questions that the method looks for one by one; #1 stands for the answer of part 1.",
  ],
  expansion: ["New directions", "What the method adds because something was missing."],
  additions: [
    "Additions to the graph",
    "Nodes and edges that what was read added to the graph, for this question only.",
  ],
  background: ["Background", "What of the first search helps, in short."],
  sub_query: [
    "A sub-question and its answer",
    "What was sent, what of the passages helped (refined), and the interim answer.",
  ],
  draft: ["Draft answer", "A first answer, which is then checked."],
  check: [
    "Check of the draft",
    "accept: the evidence carries the draft. reject: something is missing, and the method searches on.",
  ],
  context: ["What the final answer is written from", "Everything that the sub-questions gathered."],
  final: ["Final answer", "Written from all that was gathered."],
  dot: ["Where the search starts", "A concept of the question, and the graph nodes it was matched to (anchors)."],
  explored: ["Paths followed", "The best paths of a depth in the knowledge graph, each with its score."],
  judged: [
    "Paths judged",
    "Paths through the graph, judged complete (answers the question), partial (leads on) or irrelevant.",
  ],
  nodes: [
    "Nodes of the graph",
    "terminal: the paths' ends. path: all on them. resolved: those and what the read passages name.",
  ],
  step: ["Thought", "What the model concluded from the passages so far, and what it wants to look up next."],
  move: ["Move of the agent", "What the agent decided to do next."],
  stop: ["Decision to stop", "Whether what was found is enough."],
  route: ["Route chosen", "Which kind of search the question seems to need."],
  sufficiency: ["Is it enough?", "Whether the route's answer is trusted, or another route is tried."],
  llm: ["Language model asked", "The role it played, and its reply."],
  repeated_prompt: ["Not asked again", "The same prompt had failed for this question, and the model would say the same."],
  reader_search_failed: ["A search of the reader failed", "It answers from the passages that it has."],
  error: ["The question failed", "What stopped it; it counts as wrong."],
  decision: ["Decision of a role", "What it was shown and what it decided, written down for training a small model."],
  global_search: [
    "Reports chosen",
    "Summaries of the graph's communities that are asked for points on the question, in batches.",
  ],
  global_points: ["Points kept", "What the reports say on the question, with how much it helps (0 to 100)."],
  verifier_chains: ["Chains of the trained verifier", "Sets of passages with their scores, best first; the first is kept."],
  verifier_scores: ["Scores of the trained verifier", "One for each passage, in their order; higher is kept."],
};
const KINDS = {
  question: "the question itself",
  fast: "quick thought: a missing name",
  slow: "deeper thought: a rewritten question",
  step: "thought",
  followup: "follow-up of a path",
  augmented: "question with the evidence read so far",
  search: "the agent's search",
  semantic: "sub-question, in words",
  relational: "sub-question, in relations",
};
const GROUPS = {
  up: ["Promoted", "into the first 10"],
  out: ["Cut", "out of the first 10"],
  chosen: ["Promoted", "picked by the verifier"],
  kept: ["Kept", "by score"],
  cut: ["Cut", "among the first 10 before, not kept"],
  order: ["Order afterwards", "with the rank before"],
  read: ["Read", "in this order"],
  support: ["Leaned on", ""],
};
const SIDES = { semantic: "in words", relational: "in relations of the graph" };

function title(block) {
  const known = WORDS[block.n];
  const name = known ? known[0] : block.n.replaceAll("_", " ");
  return block.side ? name + ", " + (SIDES[block.side] || block.side) : name;
}
