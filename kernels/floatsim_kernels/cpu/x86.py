"""Loops around instructions of x86 processors.

Vector instructions run on whole registers: `n` registers of a, b and c, from which d is written. Tile instructions run
on tiles of 1,024 bytes. Every loop runs under an MXCSR that the caller gives, and restores the caller's own one.
"""

from .assembly import pointer_to

DEFAULT_MXCSR = 0x1F80
"""Round to nearest, keep subnormals, all exceptions masked."""

_LOOP = """
define void @run({parameters}, i64 %n, i64 %state) {{
entry:
  call void asm sideeffect "stmxcsr 4($0); ldmxcsr ($0)", "r,~{{memory}}"(i64 %state)
{before}
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
{body}
  %next = add i64 %i, 1
  br label %head
done:
{after}
  call void asm sideeffect "ldmxcsr 4($0)", "r,~{{memory}}"(i64 %state)
  ret void
}}
"""


def _address(name, size):
    return f"  %{name}o = mul i64 %i, {size}\n  %{name}p = add i64 %{name}, %{name}o"


def _at(name, kind):
    pointer = pointer_to(kind)
    return f"  %{name}q = inttoptr i64 %{name}p to {pointer}"


def _loaded(name, kind):
    return f"{_at(name, kind)}\n  %{name}v = load {kind}, {pointer_to(kind)} %{name}q, align 1"


def _stored(value, name, kind):
    return f"{_at(name, kind)}\n  store {kind} {value}, {pointer_to(kind)} %{name}q, align 1"


def accumulating(assembly, width=64):
    """Return a loop of d = c + (sum of products of a and b) on registers of `width` bytes.

    In the assembly, in AT&T's order of operands, $0 is c and d, $2 is a, and $3 is b.
    """
    kind = f"<{width // 4} x i32>"
    names = ("a", "b", "c", "d")
    body = [_address(name, width) for name in names] + [_loaded(name, kind) for name in names[:3]]
    asm = f'call {kind} asm sideeffect "{assembly}", "=v,0,v,v"({kind} %cv, {kind} %av, {kind} %bv)'
    body += [f"  %dv = {asm}", _stored("%dv", "d", kind)]
    parameters = "i64 %a, i64 %b, i64 %c, i64 %d"
    return _LOOP.format(parameters=parameters, before="", body="\n".join(body), after="")


def converting(assembly, source, result):
    """Return a loop of d = conversion of a, from registers of `source` bytes to registers of `result` bytes."""
    kinds = [f"<{width // 4} x i32>" for width in (source, result)]
    body = [_address("a", source), _address("d", result), _loaded("a", kinds[0])]
    body += [f'  %dv = call {kinds[1]} asm sideeffect "{assembly}", "=v,v"({kinds[0]} %av)']
    body += [_stored("%dv", "d", kinds[1])]
    return _LOOP.format(parameters="i64 %a, i64 %d", before="", body="\n".join(body), after="")


def tiles(mnemonic):
    """Return a loop of D = C + A B on tiles of 16 rows of 64 bytes. `config` has the shapes of tiles 0 to 2."""
    asm = (
        "tileloadd ($2,$4), %tmm0; tileloadd ($0,$4), %tmm1; tileloadd ($1,$4), %tmm2; "
        f"{mnemonic} %tmm2, %tmm1, %tmm0; tilestored %tmm0, ($3,$4)"
    )
    body = [_address(name, 1024) for name in ("a", "b", "c", "d")]
    body += [
        f'  call void asm sideeffect "{asm}", "r,r,r,r,r,~{{memory}}"'
        "(i64 %ap, i64 %bp, i64 %cp, i64 %dp, i64 64)"
    ]  # fmt: skip
    return _LOOP.format(
        parameters="i64 %a, i64 %b, i64 %c, i64 %d, i64 %config",
        before='  call void asm sideeffect "ldtilecfg ($0)", "r,~{memory}"(i64 %config)',
        body="\n".join(body),
        after='  call void asm sideeffect "tilerelease", ""()',
    )


def cpuid():
    """Return a routine that writes the four registers of CPUID for a leaf and a subleaf, (eax, ecx)."""
    four, out = "{ i32, i32, i32, i32 }", pointer_to("i32")
    lines = ["define void @run(i64 %leaf, i64 %subleaf, i64 %out) {", "  %x = trunc i64 %leaf to i32",
             "  %y = trunc i64 %subleaf to i32",
             f'  %all = call {four} asm sideeffect "cpuid", "={{ax}},={{bx}},={{cx}},={{dx}},0,2"'
             "(i32 %x, i32 %y)"]  # fmt: skip
    for i in range(4):
        lines += [f"  %v{i} = extractvalue {four} %all, {i}", f"  %o{i} = add i64 %out, {4 * i}",
                  f"  %p{i} = inttoptr i64 %o{i} to {out}", f"  store i32 %v{i}, {out} %p{i}"]  # fmt: skip
    return "\n".join([*lines, "  ret void", "}"])


TILE_CONFIG = bytes([1, 0, *[0] * 14, *[64, 0] * 3, *[0] * 26, *[16] * 3, *[0] * 13])
"""Palette 1; tiles 0, 1 and 2 with 16 rows of 64 bytes each."""
