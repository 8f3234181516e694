"""Compile our ACL declarations against the vendor's headers; any difference fails, by name.

The vendor's headers come out of the pinned torch-npu wheel, read as a zip archive into a temporary
folder, never imported and never kept. One translation unit is generated and compiled:

- every enumerator and constant: ours has the vendor's value;
- every enum and struct: size, and each member's offset and size;
- every runtime function in an X-macro list (rows ``X(result, name, (arguments), ...)``): the row,
  read with the vendor's type names, is exactly the type of the vendor's function.

The aclnn base calls (aclCreateTensor and friends) are declared in no ACL header of the wheel; their
function types are taken from its op-plugin header. For the operators themselves the wheel has no
header at all: they are compared with ``native/tests/aclnn-signatures.txt``, a digest of the public
operator repositories' pages.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from native.tools.fetch import fetch  # noqa: E402

WHEEL_ACL = "torch_npu/include/third_party/acl/inc/acl/"
WHEEL_OP_BASE = "torch_npu/include/third_party/op-plugin/op_plugin/utils/op_api_common_base.h"
SIGNATURES = ROOT / "native/tests/aclnn-signatures.txt"

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
ENUM = re.compile(
    r"enum\s+(?P<tag>\w+)?\s*(?::\s*\w+\s*)?\{(?P<body>[^}]*)\}\s*(?P<alias>\w+)?\s*;"
)
STRUCT = re.compile(r"struct\s+(?P<tag>\w+)?\s*\{(?P<body>[^{}]*)\}\s*(?P<alias>\w+)?\s*;")
CONSTANT = re.compile(r"(?:constexpr|static const)\s+\w+\s+(ACL\w+)\s*=")
POINTER_TYPE = re.compile(r"^typedef\s[^;{}()]*\(\*_(\w+)\)\s*\([^;]*\);", re.MULTILINE)


class Declarations:
    """The names that our headers declare, read from their text."""

    def __init__(self, headers: list[Path]) -> None:
        text = "\n".join(COMMENT.sub(" ", path.read_text(encoding="utf-8")) for path in headers)
        self.values: list[str] = CONSTANT.findall(text)
        self.enums: list[str] = []
        self.structs: dict[str, list[str]] = {}
        for match in ENUM.finditer(text):
            self.enums += [name for name in (match["alias"] or match["tag"],) if name]
            for item in match["body"].split(","):
                name = item.split("=")[0].strip()
                if name.startswith("ACL"):
                    self.values.append(name)
        for match in STRUCT.finditer(text):
            if name := match["alias"] or match["tag"]:
                members = [line.strip() for line in match["body"].split(";") if line.strip()]
                self.structs[name] = [
                    re.sub(r"\[.*", "", m).split()[-1].lstrip("*") for m in members
                ]
        self.macros = re.findall(r"#define\s+(ACL\w*(?:FUNCTIONS|OPS))\(", text)


def vendor_files(folder: Path) -> str:
    """Unpack the vendor's ACL headers; return the function types of the base calls."""
    with zipfile.ZipFile(fetch("torch-npu")) as wheel:
        for name in wheel.namelist():
            if name.startswith(WHEEL_ACL) and name.endswith(".h"):
                target = folder / "acl" / name.removeprefix(WHEEL_ACL)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(wheel.read(name))
        base = wheel.read(WHEEL_OP_BASE).decode("utf-8")
    handles = re.findall(r"^typedef struct \w+ acl\w+;$", base, re.MULTILINE)
    pointers = [match[0] for match in POINTER_TYPE.finditer(base)]
    return "\n".join([*handles, *pointers])


def base_calls(base: str) -> set[str]:
    """Return the names of the base calls whose function types the wheel declares."""
    return {match[1] for match in POINTER_TYPE.finditer(base)}


def rows_of(headers: Path, macro: str, folder: Path) -> list[list[str]]:
    """Expand one X-macro list with the preprocessor; return the columns of each row."""
    source = folder / "rows.cpp"
    names = "".join(f'#include "{path}"\n' for path in sorted(headers.glob("*.h")))
    source.write_text(
        f"{names}#define ROW_(...) @@ROW __VA_ARGS__ @@END\n{macro}(ROW_)\n", encoding="utf-8"
    )
    done = subprocess.run(
        ["g++", "-std=c++17", "-E", "-P", "-I", str(headers.parent), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"header check: {macro} does not expand:\n{done.stderr}")
    rows = re.findall(r"@@ROW (.*?) @@END", done.stdout, re.DOTALL)
    return [columns_of(row) for row in rows]


def columns_of(row: str) -> list[str]:
    """Split a row at its outer commas."""
    parts, depth = [""], 0
    for char in row:
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [" ".join(part.split()) for part in parts]


def function_of(columns: list[str]) -> tuple[str, str, str]:
    """Return (result, name, arguments) of a row, which may have more columns on either side."""
    at = next(i for i, word in enumerate(columns) if word.startswith("("))
    return columns[at - 2], columns[at - 1], columns[at]


def bare_types(arguments: str) -> list[str]:
    """Return the argument types of an operator row in the digest's spelling."""
    out = []
    for argument in columns_of(arguments.strip()[1:-1]):
        words = argument.replace("*", " * ").split()
        if len(words) > 1 and words[-1] != "*" and words[-1] not in ("char", "int"):
            words = words[:-1]  # the parameter's name
        kind = " ".join(words).replace(" *", "*").replace("* *", "**")
        out.append(kind if "*" in kind else kind.replace("const ", ""))
    return out


def check_operators(rows: list[list[str]]) -> tuple[list[str], list[str]]:
    """Compare operator rows with the digest; return the differences and the unknown names."""
    known = dict(
        line.split(": ", 1)
        for line in SIGNATURES.read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    )
    different, unknown = [], []
    closing = ["uint64_t*", "aclOpExecutor**"]
    for row in rows:
        name = next(word for word in row if re.fullmatch(r"aclnn\w+", word))
        name = name.removesuffix("GetWorkspaceSize")
        if any(word.startswith("(") for word in row):
            types = bare_types(next(word for word in row if word.startswith("(")))
        else:
            types = bare_types("(" + ", ".join(row[row.index(name) + 1 :]) + ")")
        if types[-2:] == closing:
            types = types[:-2]
        if name not in known:
            unknown.append(name)
        elif ", ".join(types) != known[name]:
            different.append(f"{name}: ours ({', '.join(types)}), documented ({known[name]})")
    return different, unknown


def translation_unit(ours: Declarations, names: list[str], base: str, rows: list[list[str]]) -> str:
    """Return the C++ source that compiles only if the two sides agree."""
    types = [*ours.enums, *ours.structs]
    lines = [
        *(f"#include <{name}>" for name in ("cstddef", "cstdint", "type_traits")),
        *(f"#include <{name}>" for name in ("stddef.h", "stdint.h", "stdbool.h")),
        # Types and constants only: a second extern "C" declaration of a function would be an
        # error in itself, and a less readable one.
        "#define ACL310B_NO_PROTOTYPES 1",
        "namespace ours {",
        *(f'#include "{name}"' for name in names),
        "}",
        "namespace captured {",
        *(f"constexpr long long value_{n} = (long long) ours::{n};" for n in ours.values),
        *(f"constexpr std::size_t size_{n} = sizeof(ours::{n});" for n in types),
    ]
    members = [(s, m) for s, inside in ours.structs.items() for m in inside]
    for struct, member in members:
        offset = f"offsetof(ours::{struct}, {member})"
        lines.append(f"constexpr std::size_t at_{struct}_{member} = {offset};")
    lines += ["}", '#include "acl/acl.h"', 'extern "C" {', base, "}", "typedef int aclnnStatus;"]

    def claim(condition: str, complaint: str) -> None:
        lines.append(f'static_assert({condition}, "{complaint}");')

    for name in ours.values:
        claim(f"captured::value_{name} == (long long) {name}", f"value of {name} differs")
    for name in types:
        claim(f"captured::size_{name} == sizeof(::{name})", f"size of {name} differs")
    for struct, member in members:
        same = f"captured::at_{struct}_{member} == offsetof(::{struct}, {member})"
        claim(same, f"offset of {struct}::{member} differs")
    for row in rows:
        result, name, arguments = function_of(row)
        vendor = f"_{name}" if name in base_calls(base) else f"decltype(&::{name})"
        same = f"std::is_same_v<{vendor}, {result} (*){arguments}>"
        claim(same, f"type of {name} differs")
    return "\n".join(lines) + "\n"


def compile_unit(source: str, headers: Path, folder: Path) -> str:
    """Compile the unit; return the complaints, one a line, empty when the sides agree."""
    unit = folder / "check.cpp"
    unit.write_text(source, encoding="utf-8")
    done = subprocess.run(
        [
            *("g++", "-std=c++17", "-fsyntax-only", "-Wno-deprecated-declarations"),
            *("-I", str(headers), "-I", str(headers.parent), "-I", str(folder), str(unit)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return ""
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    return "\n".join(errors) or done.stderr


def main() -> int:
    """Generate, compile, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--headers", type=Path, default=ROOT / "native/include/acl310b")
    parser.add_argument("--keep", type=Path, help="write the generated source there")
    options = parser.parse_args()
    headers = options.headers.resolve()
    files = sorted(headers.glob("*.h"))
    if not files:
        print(f"header check: no header in {headers}", file=sys.stderr)
        return 1
    ours = Declarations(files)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base = vendor_files(folder)
        rows = {tuple(row) for macro in ours.macros for row in rows_of(headers, macro, folder)}
        # An operator's row starts with its name, a function's with its result.
        operators = sorted(list(row) for row in rows if row[0].startswith("aclnn") and len(row) > 1)
        operators = [row for row in operators if row[1].startswith("(")]
        functions = sorted(list(row) for row in rows if list(row) not in operators)
        vendor = "".join(
            path.read_text(encoding="utf-8", errors="replace")
            for path in sorted((folder / "acl").rglob("*.h"))
        )
        declared = base_calls(base) | set(re.findall(r"\b(acl\w+)\s*\(", vendor))
        checked = [row for row in functions if function_of(row)[1] in declared]
        unchecked = sorted(function_of(row)[1] for row in functions if row not in checked)
        source = translation_unit(ours, [path.name for path in files], base, checked)
        if options.keep:
            options.keep.write_text(source, encoding="utf-8")
        complaints = compile_unit(source, headers, folder)
    different, unknown = check_operators(operators)
    print(
        f"{len(ours.values)} values, {len(ours.enums)} enums, {len(ours.structs)} structs, "
        f"{len(checked)} functions against torch-npu 2.14.0; "
        f"{len(operators) - len(unknown)} operators against the digest"
    )
    if unchecked:
        print(f"declared in no header of the wheel, not checked: {', '.join(unchecked)}")
    if unknown:
        print(f"operators not in the digest, not checked: {', '.join(sorted(unknown))}")
    for complaint in [*complaints.splitlines(), *different]:
        print(f"DIFFERS {complaint}")
    enough = ours.values and checked and operators
    if not enough:
        print("header check: nothing to check in one of: values, functions, operators")
    return 1 if complaints or different or not enough else 0


if __name__ == "__main__":
    sys.exit(main())
