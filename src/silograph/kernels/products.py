"""Matrix products in single precision, of many small matrices at once.

A block of the result stays in registers while its terms are added up, one by one and in their order. So a number of
the result depends on its row and its column alone, to the last bit: not on the shape of the matrices, nor on where they
lie, nor on how many processors there are. The libraries (MKL, OpenBLAS) promise none of that, and on processors that
they do not know they use half of the vector units; numba asks the processor itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from silograph.core.threads import in_parts

Matrices = NDArray[np.float32]

# Numbers in a vector, and rows of a block: it fills half or more of the registers, of which there are 32 or 16.
_LANES, _ROWS = (16, 8) if binding.get_host_cpu_features().get("avx512f") else (8, 6)
_VECTORS = 2
_COLUMNS = _VECTORS * _LANES
TERMS_A_NUMBER = 1 << 10  # that are added in the time in which one number is copied from memory, for `in_parts`


def add_products(a: Matrices, b: Matrices, out: Matrices) -> None:
    """out[k] += a[k] @ b[k], with shapes (K, M, L), (K, L, N) and (K, M, N)."""
    clients, rows, columns = out.shape
    assert a.shape[:2] == (clients, rows), "as many rows"
    assert b.shape == (clients, a.shape[2], columns), "as many terms and columns"
    work = a.shape[2] * columns // TERMS_A_NUMBER
    if clients == 1:
        in_parts(lambda part: _add_products(a[:, part], b, out[:, part]), rows, work)
    else:
        in_parts(lambda part: _add_products(a[part], b[part], out[part]), clients, rows * work)


@njit(cache=True, nogil=True)
def _add_products(a: Matrices, b: Matrices, out: Matrices) -> None:
    for k in range(len(out)):
        add_product(a[k], b[k], out[k])


@njit(cache=True, nogil=True)
def add_product(a: Matrices, b: Matrices, out: Matrices) -> None:
    """out += a @ b, with shapes (M, L), (L, N) and (M, N)."""
    rows, columns = out.shape
    packed = np.empty((len(b), _COLUMNS), np.float32)
    block = np.empty((_ROWS, _COLUMNS), np.float32)
    for n in range(0, columns, _COLUMNS):
        width = min(columns - n, _COLUMNS)
        as_it_is = width == _COLUMNS and b.strides[1] == b.itemsize
        if not as_it_is:
            for l in range(len(packed)):
                for c in range(width):
                    packed[l, c] = b[l, n + c]
        panel, first = (b, n) if as_it_is else (packed, 0)
        for m in range(0, rows, _ROWS):
            height = min(rows - m, _ROWS)
            if height == _ROWS and width == _COLUMNS and out.strides[1] == out.itemsize:
                _add_block(a, m, panel, first, out, m, n)  # type: ignore[call-arg]
                continue
            block[:] = 0.0
            _add_block(a, m, panel, first, block, 0, 0)  # type: ignore[call-arg]
            for r in range(height):
                for c in range(width):
                    out[m + r, n + c] += block[r, c]


@intrinsic
def _add_block(typing: Any, a: Any, m: Any, b: Any, n: Any, out: Any, r: Any, c: Any) -> Any:
    """Add to a block of `out`, from row r and column c on, the product of rows of `a` from m on and columns of `b` from
    n on; where `a` has too few, its last row is taken again."""
    number, whole, byte, short = ir.FloatType(), ir.IntType(64), ir.IntType(8), ir.IntType(32)
    vector, everywhere = ir.VectorType(number, _LANES), ir.Constant(ir.VectorType(short, _LANES), [0] * _LANES)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = signature.args
        ours, theirs, sums = (context.make_array(kinds[i])(context, builder, values[i]) for i in (0, 2, 4))
        from_row, from_column, to_row, to_column = (values[i] for i in (1, 3, 5, 6))
        height, terms = cgutils.unpack_tuple(builder, ours.shape)
        multiply_add = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fmuladd.v{_LANES}f32"
        )

        def at(array: Any, row: Any, column: Any, kind: Any) -> Any:
            down, across = cgutils.unpack_tuple(builder, array.strides)
            offset = builder.add(builder.mul(row, down), builder.mul(column, across))
            place = builder.gep(builder.bitcast(array.data, byte.as_pointer()), [offset])
            return builder.bitcast(place, kind.as_pointer())

        def vectors(array: Any, row: Any, column: Any) -> list[Any]:
            return [at(array, row, builder.add(column, whole(v * _LANES)), vector) for v in range(_VECTORS)]

        last = builder.sub(height, whole(1))
        rows = [builder.add(from_row, whole(i)) for i in range(_ROWS)]
        rows = [builder.select(builder.icmp_signed("<", row, last), row, last) for row in rows]
        nothing = ir.Constant(vector, [0.0] * _LANES)
        block = [[cgutils.alloca_once_value(builder, nothing) for _ in range(_VECTORS)] for _ in rows]
        with cgutils.for_range(builder, terms) as loop:
            across = [builder.load(place, align=4) for place in vectors(theirs, loop.index, from_column)]
            for row, places in zip(rows, block, strict=True):
                one = builder.load(at(ours, row, loop.index, number))
                single = builder.insert_element(ir.Constant(vector, ir.Undefined), one, short(0))
                factor = builder.shuffle_vector(single, ir.Constant(vector, ir.Undefined), everywhere)
                for other, place in zip(across, places, strict=True):
                    builder.store(builder.call(multiply_add, [factor, other, builder.load(place)]), place)
        for i, places in enumerate(block):
            for to, place in zip(vectors(sums, builder.add(to_row, whole(i)), to_column), places, strict=True):
                builder.store(builder.fadd(builder.load(to, align=4), builder.load(place)), to, align=4)
        return context.get_dummy_value()

    return types.void(a, m, b, n, out, r, c), generate
