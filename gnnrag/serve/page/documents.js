// Documents: files dropped in, their jobs as they are indexed, what is there, and taking it out.

import { api, at, el, own, say, under } from "./parts.js";

const EVERY_MS = 600;
let timer = 0;
let changed = () => {};
const stages = new Map(); // of a job, those that it has had
const sending = new Map(); // files on their way: name to what is told of them

export function startDocuments(refresh) {
  changed = refresh;
  const drop = at("drop");
  at("files").addEventListener("change", () => {
    send([...at("files").files]);
    at("files").value = "";
  });
  for (const name of ["dragenter", "dragover"]) drop.addEventListener(name, (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
  for (const name of ["dragleave", "drop"]) drop.addEventListener(name, () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    send([...event.dataTransfer.files]);
  });
}

export async function showDocuments() {
  at("drop").hidden = !own().rights?.includes("write");
  await list();
  if (own().rights?.includes("write")) await follow();
}

export const leaveDocuments = () => clearTimeout(timer);

async function send(files) {
  for (const file of files) {
    sending.set(file.name, "being sent");
    draw([]);
    try {
      await api(under(`documents/${encodeURIComponent(file.name)}`), { method: "PUT", file });
      sending.delete(file.name);
    } catch (problem) {
      sending.set(file.name, problem.message);
    }
  }
  await follow();
}

/** Look at the jobs until none is under way. */
async function follow() {
  clearTimeout(timer);
  const { jobs } = await api(under("jobs"));
  const open = jobs.filter((job) => !job.ended);
  draw(jobs);
  const left = Number(at("jobs").dataset.open ?? 0);
  at("jobs").dataset.open = open.length;
  if (left && open.length < left) {
    await changed();
    await list();
    if (!open.length) say("All documents are indexed.");
  }
  if (open.length) timer = setTimeout(() => follow().catch((problem) => say(problem.message)), EVERY_MS);
}

function draw(jobs) {
  const recent = jobs.filter((job) => !job.ended || Date.now() / 1000 - job.ended < 600).slice(0, 30);
  const rows = [...sending].map(([name, told]) => el("li", { class: told === "being sent" ? "" : "failed" }, el("b", {}, name), ` ${told}`));
  for (const job of recent) {
    const doing = job.kind === "add" ? "indexing" : "removing";
    const words = { queued: "waits", running: job.stage ? `${doing}: ${job.stage}` : doing, done: job.kind === "add" ? `indexed: ${job.message}` : "removed", failed: `failed: ${job.message}`, cancelled: "cancelled" };
    rows.push(el("li", { class: job.state }, el("b", {}, job.document), ` ${words[job.state]}`,
      job.state === "running" ? el("progress", { max: 1, value: progress(job), "aria-label": `${job.document}: ${doing}` }) : null,
      job.ended ? null : el("button", { type: "button", "aria-label": `Cancel ${job.document}`, onclick: () => cancel(job) }, "Cancel")));
  }
  at("jobs").replaceChildren(...(rows.length ? [el("h2", {}, "Latest changes"), el("ul", {}, ...rows)] : []));
}

/** Return how far a job is: one bar over all its stages, whose number is not known before, which only grows. */
function progress(job) {
  const seen = stages.get(job.key) ?? [];
  stages.set(job.key, seen);
  if (job.stage && !seen.includes(job.stage)) seen.push(job.stage);
  return 1 - 0.7 ** (Math.max(0, seen.length - 1) + (job.total ? Math.min(1, job.done / job.total) : 0));
}

async function cancel(job) {
  await api(under(`jobs/${job.key}`), { method: "DELETE" });
  await follow();
}

async function list() {
  const { documents, total } = await api(under("documents?limit=500"));
  at("documents-title").textContent = total ? `Documents (${total.toLocaleString()})` : "No documents yet";
  const writes = own().rights?.includes("write");
  at("documents").replaceChildren(...documents.map((one) =>
    el("li", {}, el("span", {}, el("b", {}, one.name), one.title && one.title !== one.name ? ` ${one.title}` : null, el("span", { class: "soft" }, ` ${one.passages} ${one.passages === 1 ? "passage" : "passages"}${one.why.length ? `; ${one.why.join("; ")}` : ""}`)),
      writes ? el("button", { type: "button", "aria-label": `Remove ${one.name}`, onclick: (event) => remove(event.target, one.name) }, "Remove") : null)));
  if (total > documents.length) at("documents").append(el("li", { class: "soft" }, `and ${total - documents.length} more`));
}

/** The first press asks, the second removes: nothing brings it back. */
async function remove(button, name) {
  if (!button.dataset.sure) {
    button.dataset.sure = "1";
    button.textContent = "Remove for good?";
    button.addEventListener("blur", () => {
      delete button.dataset.sure;
      button.textContent = "Remove";
    }, { once: true });
    return;
  }
  await api(under(`documents/${encodeURIComponent(name)}`), { method: "DELETE" });
  await follow();
}
