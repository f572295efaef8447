"""The pages of the benchmarks: tables and plots of growth, from docs/benchmarks/figures.json alone."""
import html, json, math
from pathlib import Path

BEGIN = "<!-- Written by .ci/campaigns/benchmarks from benchmarks/figures.json; change neither by hand. -->"
END = "<!-- End of what is written from figures.json. -->"
TITLES = {"files": "By the number of files", "visits": "By the length of a run", "issues": "By the issues that are worked off",
          "repositories": "By the repositories of an idle daemon", "runs": "By the runs that are kept", "code": "Of the code"}
# Plot: its part, title and unit, and the series of that unit by the beginnings of their names.
PLOTS = {
    "files-worktrees": ("files", "A worktree", "s", ["git worktree add", "agentd: worktree ready"]),
    "files-visits": ("files", "A visit and a checkpoint", "s", ["git status", "agentd: first checkpoint", "agentd: a visit"]),
    "files-commit": ("files", "The end of the work, and a whole run", "s", ["git add", "agentd: commit", "agentd: the whole run"]),
    "visits-time": ("visits", "A run", "s", ["the journal's bytes", "agentd: the whole run", "agentd: processor"]),
    "visits-each": ("visits", "One visit", "s", ["one such append", "agentd: a visit"]),
    "visits-memory": ("visits", "Memory of a run at most", "B", ["the journal", "agentd: memory"]),
    "issues-rate": ("issues", "Issues a second", "1/s", ["git alone", "agentd: issues"]),
    "issues-label": ("issues", "From the label to the first request to the model", "s", ["agentd: from the label", "agentd: the same"]),
    "issues-processor": ("issues", "Processor time of an issue", "s", ["agentd: processor", "the simulator"]),
    "issues-memory": ("issues", "Memory of the daemon", "B", ["agentd: memory"]),
    "repositories-memory": ("repositories", "Memory of an idle daemon", "B", ["agentd: memory"]),
    "repositories-processor": ("repositories", "Processor time of an idle daemon, a minute", "s", ["agentd: processor"]),
    "repositories-looks": ("repositories", "Until a repository is looked at again", "s", ["agentd: from one look"]),
    "repositories-requests": ("repositories", "Requests of an idle daemon, a minute", "1/min", ["agentd: requests", "agentd: of them"]),
    "runs-start": ("runs", "A daemon's start, and a plan", "s", ["one look", "agentd: a daemon's start", "agentd: a run's plan"]),
}
SCALES = {"s": [(1e-6, "µs"), (1e-3, "ms"), (10, "s")], "B": [(1, "B"), (1e3, "kB"), (1e6, "MB")]}
AXES = {"s": "time", "B": "memory and bytes", "1/s": "a second", "1/min": "a minute"}


def read(docs):
    return json.loads((docs / "benchmarks/figures.json").read_text())


def as_text(figures):
    return json.dumps(figures, indent=1, ensure_ascii=False) + "\n"


def scale(unit, most):
    """What a figure of this size is told in."""
    fitting = [(1 if name == "s" else size, name) for size, name in SCALES.get(unit, []) if abs(most) >= size]
    return fitting[-1] if fitting else SCALES[unit][0] if unit in SCALES else (1, "")


def amount(value, most):
    if abs(most) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(most) >= 10 else f"{value:.2f}"


def plain(unit, value):
    """A round figure, as aims and axes have it."""
    if not value:
        return "0"
    by, name = scale(unit, value)
    if unit == "s" and value >= 1e-4:
        by, name = (1, "s") if value >= 1 else (1e-3, "ms")
    return f"{float(f'{value / by:.3g}'):,.12g} {name}".strip()


def cell(unit, point):
    by, name = scale(unit, point["most"])
    median, least, most = (amount(point[key] / by, point["most"] / by) for key in ("median", "least", "most"))
    text = f"{median} ({least} – {most})" if point["rounds"] > 1 else median
    return f"{text} {name}".strip()


def ratio(point, rival):
    """How many times the rival's figure of the same run; nothing where there is none."""
    other = rival and next((one for one in rival["points"] if one["at"] == point["at"]), None)
    if not other or other["median"] <= 0 or point["median"] <= 0:
        return ""
    times = point["median"] / other["median"]
    return f"; {times:,.0f} ×" if times >= 100 else f"; {float(f'{times:.2g}'):g} ×"


def met(point):
    return point["median"] <= point["aim"]["most"]


def aims(one):
    found = {}
    for point in one["points"]:
        if "aim" in point:
            found.setdefault(point["aim"]["most"], {True: [], False: []})[met(point)].append(f"{point['at']:,}")
    told = []
    for most, places in found.items():
        said = [f"met at {' / '.join(places[True])}"] * bool(places[True]) + [f"**missed** at {' / '.join(places[False])}"] * bool(places[False])
        told.append(f"{plain(one['unit'], most)}: {', '.join(said)}")
    return "; ".join(told)


def table(part):
    sizes = sorted({point["at"] for one in part["series"] for point in one["points"]})
    heads = [part["grows_with"], *(f"{size:,}" for size in sizes), "rounds", "aim at most"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for one in part["series"]:
        rival = next((other for other in part["series"] if other["name"] == one["rival"]), None)
        points = {point["at"]: point for point in one["points"]}
        unit = {"1/s": ", a second", "1/min": ", a minute"}.get(one["unit"], "") if "a second" not in one["name"] and "a minute" not in one["name"] else ""
        cells = [cell(one["unit"], points[size]) + ratio(points[size], rival) if size in points else "–" for size in sizes]
        rounds = sorted({point["rounds"] for point in one["points"]})
        told = " – ".join(str(count) for count in rounds[:: max(1, len(rounds) - 1)][:2])
        lines.append("| " + " | ".join([one["name"] + unit, *cells, told or "–", aims(one)]) + " |")
    rivals = [f"{one['name'].removeprefix('agentd: ')} beside {one['rival']}" for one in part["series"] if one["rival"]]
    if rivals:
        lines += ["", f"×: times the rival's figure of the same run. {'; '.join(rivals)}."]
    return "\n".join(lines)


def part_of(name, part):
    """A part of the page."""
    text = f"### {TITLES[name]}\n\n"
    if not part:
        return text + "Not measured.\n"
    load = " and ".join(f"{part['load'][when][0]:.1f} at its {when}" for when in ("start", "end"))
    text += f"{part['settings'][0].upper()}{part['settings'][1:]}. Files in {part['file_system']}; begun at {part['began'][11:16]} UTC, {part['seconds']:,} s, load {load}.\n\n"
    for bench, told in part.get("told", {}).items():
        end = "" if told["passed"] else ", **missed or failed**"
        text += f"`cargo bench --bench {bench}`{end}:\n\n```text\n" + "\n".join(told["lines"]) + "\n```\n\n"
    if part["series"]:
        text += table(part) + "\n\n"
        for plot, (of, title, *_) in PLOTS.items():
            if of == name and drawn(plot, part):
                text += f"![{title}, by {part['grows_with']}](benchmarks/{plot}.svg)\n"
    return text.rstrip() + "\n"


def page(figures):
    """What stands between the two marks."""
    machine, program = figures["machine"], figures["program"]
    commit = f", commit `{program['commit'][:12]}`" if program["commit"] else ", of a commit that is not known"
    text = (f"{BEGIN}\n\nMeasured {figures['date'][:10]}: agentd {program['version']}{commit}, a program of {program['bytes'] / 1e6:.1f} MB. "
            f"{machine['cores']} cores ({machine['processor']}), {machine['memory_bytes'] / 1e9:.0f} GB, {machine['system']}, git {machine['git']}. "
            f"Beside it ran: {figures['beside']}. Median (least – most).\n")
    if figures["short"]:
        text += "\n**A short run**, to see that it works: its figures say little.\n"
    for name in TITLES:
        text += "\n" + part_of(name, figures["parts"].get(name))
    return text + f"\n{END}\n"


def drawn(plot, part):
    """The series of a plot; none where there is nothing to see growing."""
    _, _, unit, names = PLOTS[plot]
    found = [one for one in part["series"] if one["unit"] == unit and one["points"] and one["name"].startswith(tuple(names))]
    sizes = {point["at"] for one in found for point in one["points"]}
    return found if len(sizes) > 1 else []


class Axis:
    """Places of figures on a line, by their size or by their logarithm where they grow over more than a decade."""

    def __init__(self, values, begin, end, from_zero):
        least, most = min(values), max(values)
        self.log = least > 0 and most / least >= 10
        if self.log:
            least, most = least / 1.2, most * 1.1
        else:
            least, most = (min(0, least) if from_zero else least), most if most > least else least + 1
        self.least, self.most, self.begin, self.end = least, most, begin, end

    def at(self, value):
        place = math.log if self.log else float
        value = max(value, self.least)
        part = (place(value) - place(self.least)) / (place(self.most) - place(self.least))
        return round(self.begin + part * (self.end - self.begin), 1)

    def ticks(self):
        if self.log:
            powers = range(math.floor(math.log10(self.least)), math.ceil(math.log10(self.most)) + 1)
            steps = (1,) if len(powers) > 4 else (1, 2, 5)
            found = [float(f"{step}e{power}") for power in powers for step in steps]
        else:
            rough = (self.most - self.least) / 5
            step = 10 ** math.floor(math.log10(rough))
            step *= next(by for by in (1, 2, 5, 10) if by * step >= rough)
            found = [float(f"{at * step:.6g}") for at in range(math.floor(self.least / step), math.ceil(self.most / step) + 1)]
        return [tick for tick in found if self.least * 0.999 <= tick <= self.most * 1.001]


STYLE = """
.ground { fill: #ffffff } text { fill: #1f2328; font: 13px system-ui, sans-serif } .title { font-size: 16px; font-weight: 600 }
.small { font-size: 11px } .grid { stroke: #d8dee4; stroke-width: 1 } .axis { stroke: #59636e; stroke-width: 1 }
.l { fill: none; stroke-width: 2 } .aim { fill: none; stroke-width: 1.5; stroke-dasharray: 2 3 } .bar { stroke-width: 1 }
.r0, .r1 { stroke-dasharray: 7 4 } .r1 { stroke-dasharray: 12 3 3 3 }
.s0 { stroke: #0b5fd0 } .s1 { stroke: #b5480a } .s2 { stroke: #17794a } .s3 { stroke: #7a3fb4 } .s4 { stroke: #59636e } .s5 { stroke: #8a6d00 }
.d0 { fill: #0b5fd0 } .d1 { fill: #b5480a } .d2 { fill: #17794a } .d3 { fill: #7a3fb4 } .d4 { fill: #59636e } .d5 { fill: #8a6d00 }
@media (prefers-color-scheme: dark) {
.ground { fill: #0d1117 } text { fill: #e6edf3 } .grid { stroke: #2a313a } .axis { stroke: #9198a1 }
.s0 { stroke: #6aa6ff } .s1 { stroke: #ff9a57 } .s2 { stroke: #56d391 } .s3 { stroke: #c79bf5 } .s4 { stroke: #a7b0ba } .s5 { stroke: #e0c04a }
.d0 { fill: #6aa6ff } .d1 { fill: #ff9a57 } .d2 { fill: #56d391 } .d3 { fill: #c79bf5 } .d4 { fill: #a7b0ba } .d5 { fill: #e0c04a }
}
"""
WIDTH, LEFT, RIGHT, TOP, FLOOR = 760, 84, 724, 48, 348


def svg(plot, part):
    shown = drawn(plot, part)
    points = [point for one in shown for point in one["points"]]
    unit = PLOTS[plot][2]
    sizes = sorted({point["at"] for point in points})
    medians = [point["median"] for point in points] + [point["aim"]["most"] for point in points if "aim" in point]
    # Spreads belong to the picture, but must not make a logarithm impossible.
    ends = [end for point in points for end in (point["least"], point["most"]) if end > 0 or min(medians) <= 0]
    x, y = Axis(sizes, LEFT + 16, RIGHT - 16, False), Axis(medians + ends, FLOOR, TOP, True)
    height = FLOOR + 62 + 19 * len(shown)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
           f"<title>{html.escape(PLOTS[plot][1])}</title>", f"<style>{STYLE}</style>", f'<rect class="ground" width="{WIDTH}" height="{height}" rx="6"/>',
           f'<text class="title" x="16" y="26">{html.escape(PLOTS[plot][1])}</text>']
    for tick in y.ticks():
        out.append(f'<path class="grid" d="M{LEFT} {y.at(tick)}H{RIGHT}"/><text class="small" x="{LEFT - 8}" y="{y.at(tick) + 4:.1f}" text-anchor="end">{plain(unit, tick)}</text>')
    for size in sizes:
        out.append(f'<path class="axis" d="M{x.at(size)} {FLOOR}v5"/><text class="small" x="{x.at(size)}" y="{FLOOR + 18}" text-anchor="middle">{size:,}</text>')
    kinds = [f"{name} (logarithmic)" if axis.log else name for name, axis in ((part["grows_with"], x), (AXES[unit], y))]
    out += [f'<path class="axis" d="M{LEFT} {TOP}V{FLOOR}H{RIGHT}" fill="none"/>',
            f'<text class="small" x="{(LEFT + RIGHT) / 2}" y="{FLOOR + 36}" text-anchor="middle">{html.escape(kinds[0])}</text>',
            f'<text class="small" x="18" y="{(TOP + FLOOR) / 2}" text-anchor="middle" transform="rotate(-90 18 {(TOP + FLOOR) / 2})">{html.escape(kinds[1])}</text>']
    own, rivals = 0, 0
    for row, one in enumerate(shown):
        color, dash = (4 + rivals % 2, f" r{rivals % 2}") if one["is_rival"] else (own % 4, "")
        rivals, own = rivals + one["is_rival"], own + (not one["is_rival"])
        places = [(x.at(point["at"]), y.at(point["median"]), point) for point in one["points"]]
        out.append(f'<path class="l s{color}{dash}" d="M' + "L".join(f"{across} {up}" for across, up, _ in places) + '"/>')
        for across, up, point in places:
            words = f"{one['name']}, {point['at']:,}: {cell(unit, point)}"
            out.append(f'<path class="bar s{color}" d="M{across} {y.at(point["least"])}V{y.at(point["most"])}"/>'
                       f'<circle class="d{color}" cx="{across}" cy="{up}" r="3.5"><title>{html.escape(words)}</title></circle>')
        out += aim_lines(one, color, x, y)
        level = FLOOR + 60 + 19 * row
        words = one["name"] + (f"; aim (dotted) {aims(one).replace('**', '')}" if aims(one) else "")
        out.append(f'<path class="l s{color}{dash}" d="M16 {level - 4}h34"/><text class="small" x="58" y="{level}">{html.escape(words)}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def aim_lines(one, color, x, y):
    """The aim across the sizes that it is for; a short piece where it is for one."""
    aimed = [point for point in one["points"] if "aim" in point]
    runs = {}
    for point in aimed:
        runs.setdefault(point["aim"]["most"], []).append(x.at(point["at"]))
    return [f'<path class="aim s{color}" d="M{min(at) - 16} {y.at(most)}H{max(at) + 16}"/>' for most, at in runs.items()]


def pictures(figures):
    return {f"{plot}.svg": svg(plot, part) for plot in PLOTS if (part := figures["parts"].get(PLOTS[plot][0])) and drawn(plot, part)}


def with_tables(text, figures):
    """The page with new tables, or nothing where it has not both marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END + "\n")
    return before + page(figures) + after if begin and end else None


def stale(docs):
    """What differs from what the figures give, and figures that contradict themselves; each one sentence."""
    figures, wrong = read(docs), []
    text = (docs / "benchmarks.md").read_text()
    want = with_tables(text, figures)
    if want is None:
        return [f"benchmarks.md has not both marks: {BEGIN} and {END}"]
    if text != want:
        pairs = zip(text.splitlines() + [""], want.splitlines() + [""])
        at, (have, new) = next((at, pair) for at, pair in enumerate(pairs, 1) if pair[0] != pair[1])
        wrong.append(f"benchmarks.md:{at} is stale\n  has   {have}\n  wants {new}")
    pictured = pictures(figures)
    found = {file.name for file in (docs / "benchmarks").glob("*.svg")}
    wrong += [f"benchmarks/{name} is of no part that was measured" for name in sorted(found - set(pictured))]
    for name, content in pictured.items():
        if name not in found or (docs / "benchmarks" / name).read_text() != content:
            wrong.append(f"benchmarks/{name} is {'stale' if name in found else 'missing'}")
    for name, part in figures["parts"].items():
        for one in (part or {"series": []})["series"]:
            for point in one["points"]:
                if "aim" in point and point["aim"]["met"] != met(point):
                    wrong.append(f"figures.json: {name}, {one['name']}, {point['at']}: whether the aim is met is not what its median says")
    return wrong


def write(figures, docs):
    folder = docs / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    text = with_tables((docs / "benchmarks.md").read_text(), figures)
    if text is None:
        raise SystemExit(f"{docs / 'benchmarks.md'} has not both marks; put them where the tables belong:\n{BEGIN}\n{END}")
    (docs / "benchmarks.md").write_text(text)
    (folder / "figures.json").write_text(as_text(figures))
    pictured = pictures(figures)
    for file in folder.glob("*.svg"):
        if file.name not in pictured:
            file.unlink()
    for name, content in pictured.items():
        (folder / name).write_text(content)
