// Follows the daemon's event stream; draws with textContent only, because titles and log lines are other people's text.
"use strict";

const at = (id) => document.getElementById(id);
const LONGEST_LOG = 300;

function make(name, text, style) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  if (style) made.className = style;
  return made;
}

function link(url, text) {
  const made = make("a", text);
  if (/^https?:\/\//.test(url) || url.startsWith("/")) made.href = url;
  return made;
}

function fill(place, rows, columns, nothing) {
  if (rows.length === 0) {
    const row = make("tr");
    const cell = make("td", nothing, "empty");
    cell.colSpan = columns;
    row.append(cell);
    place.replaceChildren(row);
    return;
  }
  place.replaceChildren(...rows);
}

// As everywhere: cents, and more digits where a small sum needs them.
function dollars(value) {
  if (value === null || value === undefined) return "unknown";
  const cents = value >= 10 || Math.round(value * 1e6) % 1e4 === 0;
  return "$" + Number(value).toFixed(cents ? 2 : 4);
}
const count = (value) => Number(value).toLocaleString("en");

const amount = (known, unknown) => (unknown ? (known ? `at least ${dollars(known)}` : "unknown") : dollars(known));

// In UTC everywhere: reasons, the log's texts and the days of costs are.
function time(value) {
  if (!value) return "never";
  return new Date(value).toISOString().slice(0, 19).replace("T", " ") + " UTC";
}

// When the connection was lost: nothing newer is known. null = it is there.
let lost = null;

function span(since) {
  const seconds = Math.max(0, Math.round(((lost || Date.now()) - new Date(since)) / 1000));
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  return h ? `${h}h ${m}m` : m ? `${m}m ${s}s` : `${s}s`;
}

let status = null;

function drawRunning() {
  const cards = status.running.map((run) => {
    const card = make("div");
    const progress = run.progress || {};
    const head = make("p", `${run.repo}#${run.issue}`, "title");
    if (run.node && !run.placed_on) head.append(make("small", ` on ${run.node}`));
    card.append(head, make("p", progress.title || "starting", progress.title ? "" : "empty"));
    const doing = run.stopping ? `stopping: ${run.stopping}` : [progress.step, progress.turn ? `turn ${progress.turn}` : "", progress.doing].filter(Boolean).join(" · ");
    const place = run.placed_on ? `given to ${run.placed_on}` : "";
    card.append(make("p", [doing, place].filter(Boolean).join(" · ") || "preparing", run.stopping ? "warn" : "empty"));
    if (run.placed_on) {
      card.append(make("p", span(run.since), "facts"));
      return card;
    }
    const bar = make("progress");
    // Whichever of its budgets is used up more.
    const share = (used, cap) => (cap ? Math.min(1, (used || 0) / cap) : 0);
    bar.value = Math.max(share(progress.cost_usd, progress.max_cost_usd), share(progress.visit, progress.max_steps));
    bar.title = "Share of the run's budget of visits or money";
    const facts = make("p", null, "facts");
    const cap = progress.max_cost_usd ? ` of ${dollars(progress.max_cost_usd)}` : "";
    const before = progress.inherited_usd ? `, ${dollars(progress.inherited_usd)} of it by earlier runs` : "";
    facts.append(make("span", `${dollars(progress.cost_usd || 0)}${cap}${before}`), make("span", `visit ${progress.visit || 0}${progress.max_steps ? " of at most " + progress.max_steps : ""}`), make("span", span(run.since)));
    card.append(bar, facts);
    return card;
  });
  if (cards.length === 0) cards.push(make("p", "Nothing runs.", "empty"));
  at("running").replaceChildren(...cards);
}

// What a person is asked: the answers to choose from, where the question stands, since when and until when it is waited for.
function askedLines(asked) {
  const lines = asked.options.map((option, place) => make("small", `${place + 1}. ${option}`));
  const last = make("small", `since ${time(asked.since)}${asked.deadline ? `, until ${time(asked.deadline)}` : ""}`);
  if (asked.url) last.prepend(link(asked.url, "comment"), ", ");
  return [...lines, last];
}

function issueRow(issue, state, style) {
  const row = make("tr");
  const code = make("td", state, "tight");
  code.append(make("small", issue.code, style));
  const place = make("td");
  const name = `${issue.repo}#${issue.issue}`;
  place.append(issue.url ? link(issue.url, name) : name);
  if (issue.title) place.append(make("small", issue.title));
  if (issue.node) place.append(make("small", `polled by ${issue.node}`));
  const why = make("td", issue.text, "lines");
  if (issue.asked) why.append(...askedLines(issue.asked));
  row.append(place, code, why);
  return row;
}

function draw() {
  const failing = status.repositories.filter((of) => of.failing_since || of.unread);
  const word = status.stopping ? "stopping" : failing.length || status.reload_error || status.store_unavailable ? "degraded" : "working";
  at("state").textContent = word;
  at("state").className = "pill " + (word === "working" ? "good" : word === "degraded" ? "bad" : "warn");
  const named = (lives) => (status.nodes || []).filter((node) => node.lives === lives).map((node) => node.node).join(", ");
  const gone = named(false);
  const cluster = named(true) ? `, nodes at work: ${named(true)}${gone ? `, not at work: ${gone}` : ""}` : "";
  at("about").textContent = `version ${status.version}, process ${status.pid}, up ${span(status.started_at)}${cluster}`;
  const problems = failing.map((of) => (of.failing_since ? `${of.repo} cannot be polled: ${of.error}` : `${of.repo}: ${of.unread}`));
  if (status.reload_error) problems.push(`The configuration on disk is not in force: ${status.reload_error}`);
  if (status.store_unavailable) problems.push(`store_unavailable since ${time(status.store_unavailable.since)}: ${status.store_unavailable.error}`);
  for (const node of status.nodes || []) {
    for (const trouble of node.troubles || []) problems.push(`Node ${node.node}: ${trouble}`);
  }
  if (status.stale_since) problems.push(`Of the other nodes nothing newer is known than of ${time(status.stale_since)}.`);
  if (status.limits.held_by) problems.push(`GitHub's ${status.limits.held_by} limit holds requests back${status.limits.held_until ? " until " + time(status.limits.held_until) : ""}.`);
  at("problem").hidden = problems.length === 0;
  at("problem").textContent = problems.join("\n");
  at("n-running").textContent = status.running.length;
  at("n-waiting").textContent = status.waiting.length;
  at("n-parked").textContent = status.parked.length;
  const budget = status.limits.budgets.find((one) => one.resource === "core") || status.limits.budgets[0];
  at("n-limit").textContent = budget ? count(budget.remaining) : "–";
  at("limit-name").textContent = budget ? `of ${count(budget.limit)} GitHub requests left` : "GitHub requests left";
  drawRunning();
  fill(at("queue"), [...status.parked.map((issue) => issueRow(issue, "needs a person", "bad")), ...status.waiting.map((issue) => issueRow(issue, "waits", "warn"))], 3, "Nothing waits.");
  fill(at("repositories"), status.repositories.map((of) => {
    const row = make("tr");
    const repo = make("td", of.repo);
    if (of.node) repo.append(make("small", `polled by ${of.node}`));
    row.append(repo, make("td", time(of.polled_at), "tight"), make("td", of.next_sweep ? time(of.next_sweep) : "–", "tight"), of.failing_since || of.unread ? make("td", of.error || of.unread, "bad") : make("td", "ok", "good"));
    return row;
  }), 4, "No repositories.");
}

async function drawRuns() {
  const [runs, cost] = await Promise.all(["/api/v1/runs?limit=25", "/api/v1/cost"].map((url) => fetch(url).then((answer) => answer.json())));
  const today = new Date().toISOString().slice(0, 10);
  const spent = (place, value, unknown, when) => {
    at(`n-${place}`).textContent = amount(value, unknown);
    const more = unknown ? `, ${unknown} of unknown cost` : "";
    at(`${place}-name`).textContent = `spent ${when}${more}`;
  };
  spent("today", (cost.by_day[today] || 0) + cost.under_way_usd, cost.unknown_by_day[today] || 0, "today (UTC)");
  spent("total", cost.total_usd, cost.runs_of_unknown_cost + cost.turns_of_unknown_cost, "in all");
  at("cap").hidden = !cost.day_cap;
  if (cost.day_cap) {
    const known = cost.day_cap.spent_usd !== null;
    at("n-cap").textContent = known ? dollars(cost.day_cap.spent_usd + cost.day_cap.set_aside_usd) : "unknown";
    const aside = known && cost.day_cap.set_aside_usd ? `, ${dollars(cost.day_cap.set_aside_usd)} of it set aside` : "";
    at("cap-name").textContent = `counts against the day's cap of ${dollars(cost.day_cap.cap_usd)}${aside}`;
  }
  fill(at("runs"), runs.runs.filter((run) => run.state !== "under way").map((run) => {
    const row = make("tr");
    const issue = make("td", run.issue === null || run.issue === undefined ? run.repo : `${run.repo}#${run.issue}`);
    const isKnown = run.state === "ended";
    issue.append(make("small", [isKnown ? run.title : run.run_id, run.node ? `on ${run.node}` : ""].filter(Boolean).join(" · ")));
    const word = run.success ? "achieved" : String(isKnown ? run.stop_reason || "" : run.state).toLowerCase().replaceAll("_", " ");
    const outcome = make("td", word, run.success ? "good tight" : "bad tight");
    if (run.stop_detail) outcome.append(make("small", run.stop_detail));
    const links = make("td", null, "tight");
    if (run.pr_url) links.append(link(run.pr_url, "pull request"), " · ");
    links.append(link(`/api/v1/runs/${run.run_id}/report`, "report"));
    row.append(issue, make("td", isKnown ? time(run.completed_at) : "unknown", "tight"), outcome, make("td", amount(run.cost_usd, run.cost_unknown || !isKnown), "num"), links);
    return row;
  }), 5, "No run has ended yet.");
}

let pending = null;
function soon() {
  if (pending) return;
  pending = setTimeout(() => { pending = null; drawRuns().catch(() => {}); }, 400);
}

function say(line) {
  const log = at("log");
  const follows = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
  const item = make("li");
  const style = /failed|rejected|denied|: exit code [1-9]|^(SYSTEM_ERROR|BUDGET_EXCEEDED|NO_EVIDENCE|HUMAN_REQUESTED)/.test(line.text) ? "bad" : line.text.startsWith("OBJECTIVE_ACHIEVED") ? "good" : "";
  item.append(make("time", new Date(line.at).toISOString().slice(11, 19)), make("b", `${line.repo}#${line.issue}`), make("span", line.text, style));
  log.append(item);
  while (log.children.length > LONGEST_LOG) log.firstChild.remove();
  if (follows) log.scrollTop = log.scrollHeight;
}

const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 30000;
let stream = null;
let pause = FIRST_PAUSE;

function listen() {
  stream = new EventSource("/api/v1/events");
  stream.addEventListener("open", () => {
    pause = FIRST_PAUSE;
    at("log").replaceChildren();
  });
  stream.addEventListener("status", (event) => {
    lost = null;
    document.body.classList.remove("stale");
    status = JSON.parse(event.data);
    draw();
    soon();
  });
  stream.addEventListener("log", (event) => say(JSON.parse(event.data)));
  stream.addEventListener("error", () => {
    // Each attempt to reach the daemon again ends here, too.
    lost = lost || Date.now();
    document.body.classList.add("stale");
    at("state").textContent = status ? `no connection; all below is as of ${time(lost)}` : "no connection";
    at("state").className = "pill bad";
    if (status) drawRunning();
    // The browser tries again by itself, but not after an answer that is no stream.
    if (stream.readyState !== EventSource.CLOSED) return;
    setTimeout(listenAgain, pause);
    pause = Math.min(2 * pause, LONGEST_PAUSE);
  });
}

async function listenAgain() {
  const unknown = await fetch("/api/v1/limits").then((answer) => answer.status === 401, () => false);
  // The page asks for the token that holds now.
  if (unknown) location.replace("/");
  else listen();
}

listen();
drawRuns().catch(() => {});
setInterval(() => { if (status && !lost) drawRunning(); }, 1000);
