// Conversations, kept in this browser for each index.

import { state } from "./parts.js";

const MOST = 20;
const key = () => `gnnrag conversations of ${state.index}`;

/** Return the conversations of the index, newest first: { id, turns: [{ question, answers: [{ method, retriever, data }] }] }. */
export function kept() {
  try {
    return JSON.parse(localStorage.getItem(key())) ?? [];
  } catch {
    return [];
  }
}

/** Keep a conversation in front of the others; the oldest go where there is no room. */
export function keep(talk) {
  const others = kept().filter((other) => other.id !== talk.id).slice(0, MOST - 1);
  for (;;) {
    try {
      localStorage.setItem(key(), JSON.stringify(talk.turns.length ? [talk, ...others] : others));
      return;
    } catch {
      if (!others.pop()) return;
    }
  }
}

export const drop = (talk) => keep({ ...talk, turns: [] });

/** Return an answer with its sources, as text. */
export function asText(data) {
  const sources = new Map(data.citations.map((cited) => [cited.number, `[${cited.number}] ${cited.title || cited.place} (${cited.place}): ${cited.sentence}`]));
  return [data.marked || "No answer was found in the documents.", ...sources.values()].join("\n\n");
}

/** Save a conversation as a Markdown file. */
export function save(talk) {
  const parts = talk.turns.flatMap(({ question, answers }) => [`## ${question}`, ...answers.map(({ method, retriever, data }) => `${asText(data)}\n\n*${method} on ${retriever}*`)]);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([`# ${state.index}\n\n${parts.join("\n\n")}\n`], { type: "text/markdown" }));
  link.download = `${state.index}.md`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
