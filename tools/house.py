"""How large the house is and how it hangs together, counted from the sources: no page counts by hand.

    house.py [ROOT]            a table by crate: lines of code, files, circles, globs, crowded types
    house.py [ROOT] --json     the same as JSON
    house.py [ROOT] --circles  also every circle with its files, and for each import in it the names that make it
    house.py --check           whether a number is above its budget in docs/developer/house.toml (exit code 1)
    house.py --lower           lowers the budgets to what is measured; only a hand raises one

Code: lines of src/ that are neither blank, comment, doc comment nor test (`#[cfg(test)]` items, src/**/tests.rs).
Rust in tools/ and build scripts is a row of its own; `include!` and `#[path]` are named, since they hide lines.
Circle: files of one crate that import each other, directly or by others, in files and in lines of code: files that
are merged do not make it smaller. An arrow to a parent module counts if the parent's file defines what is imported,
and not if it only lists or re-exports it. Globs (`use x::*`) outside tests are counted, since they hide arrows.
Crowded: a type with more than 40 functions in its own `impl T` blocks, over all files, and in traits of the crate
that only this type implements.

Not here: which code an operation runs through (walks.py).
"""

import json
import os
import pathlib
import re
import sys
import tomllib
from collections import defaultdict

BUDGETS = pathlib.Path("docs/developer/house.toml")
FUNCTIONS_MAX = 40
# Lines of code that a crate may be below its budget before it is said.
SLACK = 50
LOOSE = "tools (Rust) and build scripts"
FUNCTION = re.compile(r"\s*(?:pub(?:\([^)]*\))?\s+)?(?:const |async |unsafe |extern \"[^\"]*\" )*fn \w+")
DEFINES = re.compile(r"\b(?:struct|enum|union|trait|fn|const|static|type|macro_rules!)\s+(?:mut\s+)?(\w+)")
USE = re.compile(r"(pub(?:\([^)]*\))?\s+)?\buse\s+([^;]+);")


def walk(root):
    """os.walk, in an order that is the same everywhere."""
    for folder, subfolders, names in os.walk(root):
        subfolders.sort()
        yield folder, subfolders, sorted(names)


def indent(line):
    return len(line) - len(line.lstrip())


def test_lines(lines, path):
    """For each line whether it belongs to a test."""
    is_test = [path.endswith("/tests.rs") or "/tests/" in "/" + path.split("/src/", 1)[-1]] * len(lines)
    at = 0
    while at < len(lines):
        if re.match(r"\s*#\[cfg\((test\)|(all|any)\(test[,)])", lines[at]):
            item = at + 1
            while item < len(lines) and re.match(r"\s*(#\[|//|$)", lines[item]):
                item += 1
            if item == len(lines):
                break
            end = item
            if lines[item].rstrip().endswith("{"):
                close = " " * indent(lines[item]) + "}"
                end = next((i for i in range(item + 1, len(lines)) if lines[i].startswith(close)), len(lines))
            for i in range(at, min(end + 1, len(lines))):
                is_test[i] = True
            at = end
        at += 1
    return is_test


def numbered_code(path):
    """The lines of code of a file with their numbers, from 1."""
    lines = pathlib.Path(path).read_text().split("\n")
    kept, in_comment = [], False
    for number, (line, is_test) in enumerate(zip(lines, test_lines(lines, str(path))), 1):
        text = line.strip()
        if is_test or not text or text.startswith("//"):
            continue
        if in_comment or text.startswith("/*"):
            in_comment = "*/" not in text
            continue
        kept.append((number, line))
    return kept


def code(path):
    return [line for _, line in numbered_code(path)]


def use_paths(tree, prefix=()):
    """The paths that `a::{b, c::d}` names."""
    tree = tree.strip()
    if tree.startswith("{"):
        items, depth = [""], 0
        for char in tree[1:-1]:
            depth += (char == "{") - (char == "}")
            if char == "," and not depth:
                items.append("")
            else:
                items[-1] += char
        return [path for item in items if item.strip() for path in use_paths(item, prefix)]
    if name := re.match(r"(\w+|\*)(\s+as\s+\w+)?\s*$", tree):
        return [prefix + (name[1],)]
    step = re.match(r"(\w+)\s*::\s*(.*)$", tree, re.S)
    return use_paths(step[2], prefix + (step[1],)) if step else []


class Modules:
    """The modules of a crate, as tuples of names, and what each defines and imports."""

    def __init__(self, src):
        self.files = {}
        for folder, _, names in walk(src):
            for name in names:
                file = os.path.relpath(os.path.join(folder, name), src)
                parts = tuple(file[:-3].split("/"))
                if name.endswith(".rs") and "tests" not in parts:
                    self.files.setdefault(parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts, file)
        of_each = lambda work: {module: work(module) for module in self.files}
        self.text = of_each(lambda m: "\n".join(re.sub(r"//.*", "", line) for line in code(f"{src}/{self.files[m]}")))
        self.defines = of_each(lambda m: set(DEFINES.findall(self.text[m])))
        uses = lambda text: [(bool(public), path) for public, tree in USE.findall(text) for path in use_paths(tree)]
        self.uses = of_each(lambda m: uses(self.text[m]))
        # Names that a module re-exports, and modules of which it re-exports all.
        self.named, self.globs = defaultdict(dict), defaultdict(list)
        for module, uses in self.uses.items():
            for is_public, path in uses:
                if is_public and (found := self.resolve(module, path)):
                    self.named[module][found[1] or path[-1]] = found[0]
                    self.globs[module] += [found[0]] if path[-1] == "*" else []

    def resolve(self, module, path):
        """The module that a path leads into, and the name in it; nothing if it leads out of the crate."""
        base, rest = list(module), list(path)
        if rest[0] == "crate":
            base, rest = [], rest[1:]
        elif rest[0] == "self":
            rest = rest[1:]
        elif rest[0] == "super":
            while rest and rest[0] == "super":
                base, rest = base[:-1], rest[1:]
        elif (*base, rest[0]) not in self.files:
            return None
        found = tuple(base)
        while rest and (*found, rest[0]) in self.files:
            found, rest = (*found, rest[0]), rest[1:]
        return (found, rest[0] if rest else None) if found in self.files else None

    def home(self, module, name):
        """The module that defines a name which is found in another one."""
        seen = set()
        while name and (module, name) not in seen:
            seen.add((module, name))
            if name in self.named[module]:
                module = self.named[module][name]
            elif name not in self.defines[module]:
                has = lambda other: name in self.defines[other] or name in self.named[other]
                module = next(filter(has, self.globs[module]), module)
        return module

    def arrows(self):
        """For each module those whose definitions it takes, with the names."""
        arrows = defaultdict(lambda: defaultdict(set))
        for module, text in self.text.items():
            inline = re.findall(r"\b(crate|super|self)((?:::\w+)+)", USE.sub("", text))
            paths = [(False, (first, *rest[2:].split("::"))) for first, rest in inline]
            for is_public, path in self.uses[module] + paths:
                if not (found := self.resolve(module, path)):
                    continue
                to, name = self.home(*found), found[1]
                is_list = is_public and to[: len(module)] == module
                is_parent = module[: len(to)] == to and (name is None or name not in self.defines[to])
                if to != module and not is_list and not is_parent:
                    arrows[module][to].add(name or "*")
        return arrows


def circles(modules, arrows):
    """Strongly connected components of more than one module, by Tarjan; the largest first."""
    index, low, stack, found = {}, {}, [], []

    def visit(module):
        index[module] = low[module] = len(index)
        stack.append(module)
        for to in arrows[module]:
            if to not in index:
                visit(to)
                low[module] = min(low[module], low[to])
            elif to in stack:
                low[module] = min(low[module], index[to])
        if low[module] == index[module]:
            circle = stack[stack.index(module) :]
            del stack[-len(circle) :]
            found.extend([sorted(circle)] if len(circle) > 1 else [])

    for module in modules:
        if module not in index:
            visit(module)
    return sorted(found, key=len, reverse=True)


def impls(lines):
    """(type, trait or None, functions) of each impl block, wherever it stands."""
    last = lambda text: (re.findall(r"\w+", text) or ["?"])[-1] if text else None
    found = []
    for at, line in enumerate(lines):
        if not (begin := re.match(r"(\s*)(?:unsafe )?impl\b(.*)", line)):
            continue
        head, end = begin[2], at
        while "{" not in lines[end] and end + 1 < len(lines):
            end += 1
            head += " " + lines[end].strip()
        head = head.split("{")[0]
        for _ in range(3):
            head = re.sub(r"<[^<>]*>", "", head)
        trait, _, owner = head.split(" where ")[0].strip().rpartition(" for ")
        count = 0
        while (end := end + 1) < len(lines) and not lines[end].startswith(begin[1] + "}"):
            count += indent(lines[end]) > 0 and bool(FUNCTION.match(lines[end]))
        found.append((last(owner), last(trait), count))
    return found


def crowded(blocks, traits, homes):
    """Types with too many functions: how many, in how many files. `blocks`: (file, type, trait, functions)."""
    users = defaultdict(set)
    for _, owner, trait, _ in blocks:
        users[trait].add(owner)
    functions, files = defaultdict(int), defaultdict(set)
    for file, owner, trait, count in blocks:
        if trait and not (trait in traits and len(users[trait]) == 1):
            continue
        name = owner
        if len(homes[owner]) > 1:
            name += " of " + max(homes[owner], key=lambda home: len(os.path.commonprefix([home, file])))
        functions[name] += count
        files[name].add(file)
    most = sorted(functions.items(), key=lambda item: -item[1])
    return {name: [count, len(files[name])] for name, count in most if count > FUNCTIONS_MAX}


def measure_crate(folder):
    src = f"{folder}/src"
    lines, hidden, globs, blocks, traits, homes = {}, set(), 0, [], set(), defaultdict(list)
    for below, _, names in walk(src):
        for name in names:
            path = os.path.join(below, name)
            if not name.endswith(".rs") or not (kept := code(path)):
                continue
            file, text = os.path.relpath(path, src), "\n".join(kept)
            lines[file] = len(kept)
            hidden |= {file} if re.search(r"\binclude!|#\[path", text) else set()
            globs += sum("prelude" not in path for path in re.findall(r"\buse\s+([^;]+)::\*", text))
            traits |= set(re.findall(r"\btrait\s+(\w+)", text))
            for defined in re.findall(r"\b(?:struct|enum|union)\s+(\w+)", text):
                homes[defined].append(file)
            blocks += [(file, *block) for block in impls(kept)]
    modules = Modules(src)
    arrows = modules.arrows()
    found = circles(modules.files, arrows)
    files = modules.files
    is_inside = lambda one, other: any(one in circle and other in circle for circle in found)
    edges = {files[one]: {files[to]: sorted(names) for to, names in arrows[one].items() if is_inside(one, to)}
             for circle in found for one in circle}  # fmt: skip
    return {
        "code": sum(lines.values()),
        "files": len(lines),
        "longest": max((count, file) for file, count in lines.items()),
        "hidden": sorted(hidden),
        "globs": globs,
        "circles": [[files[module] for module in circle] for circle in found],
        "circle_lines": [sum(lines.get(files[module], 0) for module in circle) for circle in found],
        "crowded": crowded(blocks, traits, homes),
        "edges": edges,
    }


def measure(root):
    """Lines by the folder above the crates, and what is measured of each crate."""
    crates, loose = {}, 0
    for folder, subfolders, names in walk(root):
        subfolders[:] = [name for name in subfolders if name not in ("target", ".git", "node_modules", ".venv")]
        inside = os.path.relpath(folder, root)
        is_tool = inside.split("/")[0] == "tools"
        is_script = lambda name: name == "build.rs" and "Cargo.toml" in names or is_tool and name.endswith(".rs")
        loose += sum(len(code(f"{folder}/{name}")) for name in names if is_script(name))
        if "Cargo.toml" in names and "src" in subfolders and not is_tool and "fuzz" not in inside.split("/"):
            crates[inside] = measure_crate(folder)
    wings = defaultdict(int, {LOOSE: loose} if loose else {})
    for name, crate in crates.items():
        wings[name.split("/")[0]] += crate["code"]
    return {"wings": wings, "crates": crates}


def print_table(found, with_circles):
    heading = "longest file; circles of more than 4 files or 1,500 lines; types with more than 40 functions (in files)"
    print(f"{'crate':24} {'code':>6} {'files':>5}  {heading}")
    for name, crate in sorted(found["crates"].items(), key=lambda item: -item[1]["code"]):
        circles = [(len(files), lines) for files, lines in zip(crate["circles"], crate["circle_lines"])]
        large = [f"{files} files {lines} lines" for files, lines in circles if files > 4 or lines > 1500]
        parts = ["{1} {0}".format(*crate["longest"])]
        parts += [f"circles: {', '.join(large)}"] if large else []
        parts += [f"globs {crate['globs']}"] if crate["globs"] else []
        parts += [f"hides lines: {', '.join(crate['hidden'])}"] if crate["hidden"] else []
        parts += [", ".join(f"{type_} {count} ({files})" for type_, (count, files) in crate["crowded"].items())]
        print(f"{name:24} {crate['code']:6} {crate['files']:5}  " + "; ".join(filter(None, parts)))
        for circle in crate["circles"] if with_circles else []:
            print("    circle:", *circle)
            for file in circle:
                for to, names in crate["edges"][file].items():
                    print(f"        {file} -> {to}: {', '.join(names)}")
    wings = found["wings"]
    print(f"{'all':24} {sum(wings.values()):6}   " + ", ".join(f"{wing} {lines}" for wing, lines in wings.items()))


def by_name(found):
    """The measures that have a budget: {table of the file: {name: {measure: number}}}."""
    crates, functions = {}, {}
    for path, crate in found["crates"].items():
        largest = {"circle_files": map(len, crate["circles"]), "circle_lines": crate["circle_lines"]}
        largest = {measure: max(each, default=0) for measure, each in largest.items()}
        crates[path] = {"code": crate["code"], **largest, "globs": crate["globs"], "hidden": len(crate["hidden"])}
        functions |= {f"{path}: {type_}": {"functions": count} for type_, (count, _) in crate["crowded"].items()}
    return {"crates": crates, "functions": functions}


def over_budget(found):
    """What is above its budget, in words; nothing if all is within. Prints which budgets may fall."""
    wrong, budgets = [], tomllib.loads(BUDGETS.read_text())
    for table, names in found.items():
        for name, measures in names.items():
            for measure, number in measures.items():
                default = FUNCTIONS_MAX if table == "functions" else 0
                budget = budgets[table].get(name, {}).get(measure, default)
                if number > budget:
                    wrong.append(f"{name}: {measure} is {number}, its budget {budget}")
                elif number < budget - SLACK * is_lines(measure):
                    print(f"{name}: {measure} is {number}, its budget {budget} may fall")
    heading = f"above a budget of {BUDGETS}: raise one only in a commit of its own that says why"
    return "\n  ".join([heading, *wrong]) if wrong else None


def is_lines(measure):
    return measure in ("code", "lines", "circle_lines")


def lower_budgets(found):
    """Lowers the budgets to what is measured, lines to the next ten. What has no budget gets none."""
    text = BUDGETS.read_text()
    budgets = tomllib.loads(text)
    for table, names in found.items():
        for name in list(budgets[table]):
            if name not in names:
                del budgets[table][name]
                continue
            for measure, budget in budgets[table][name].items():
                number = names[name][measure]
                budgets[table][name][measure] = min(budget, -(-number // 10) * 10 if is_lines(measure) else number)
    written = text[: text.index("[")]
    for table, names in budgets.items():
        line = lambda measures: ", ".join(f"{measure} = {number}" for measure, number in measures.items())
        lines = [f'"{name}" = {{ {line(measures)} }}' for name, measures in names.items()]
        written += "\n".join([f"[{table}]", *lines]) + "\n\n"
    BUDGETS.write_text(written.rstrip() + "\n")


def main():
    sys.setrecursionlimit(10_000)
    roots = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    found = measure(*roots or ["."])
    if "--json" in sys.argv:
        print(json.dumps(found))
    elif "--check" in sys.argv:
        sys.exit(over_budget(by_name(found)))
    elif "--lower" in sys.argv:
        lower_budgets(by_name(found))
    else:
        print_table(found, "--circles" in sys.argv)


if __name__ == "__main__":
    main()
