import cocotb
from cocotb.triggers import Timer

import floatsim as fs


@cocotb.test()
async def conversion(dut):
    unit = fs.testing.hardware_unit("convert", "fp32", "bf16")
    x, *_ = unit.vectors(10_000, seed=0)
    results = []
    for code in x:
        dut.x.value = int(code)
        await Timer(1, "ns")
        results.append(int(dut.y.value) if dut.y.value.is_resolvable else None)
    found = unit.compare([x], results)
    assert found, str(found)
