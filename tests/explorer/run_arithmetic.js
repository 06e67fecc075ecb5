/* Calls functions of arithmetic.js for the tests: node run_arithmetic.js JOBS.json RESULTS.json
 *
 * A job is [name, arguments...]. Codes are hexadecimal texts, as BigInt has no JSON.
 */
"use strict";
const fs = require("node:fs");
const crypto = require("node:crypto");
const path = require("node:path");
const F = require(path.join(__dirname, "../../floatsim/explorer/arithmetic.js"));

const made = new Map();
function format(data) {
  const key = JSON.stringify(data);
  if (!made.has(key)) {
    made.set(key, F.makeFormat(data.name, data.exponentBits, data.trailingBits, data.specials, data.bias, data.colour));
  }
  return made.get(key);
}
const options = (data) => ({ ...F.DEFAULTS, ...data, random: BigInt(data.random || 0) });
const hex = (code) => (code === null ? null : `0x${code.toString(16)}`);
const plain = ({ code, events }) => [hex(code), events];
const number = (x) => [x.kind, x.sign, hex(x.significand), x.exponent, x.sticky];

const JOBS = {
  facts(data) {
    const f = format(data);
    return { bits: f.bits, emin: f.emin, emax: f.emax, bias: f.bias, signed: f.signed, maxCode: hex(f.maxCode),
      infinityCode: hex(f.infinityCode), canonicalNan: hex(f.canonicalNan), quietBit: hex(f.quietBit),
      hasSignedZero: f.hasSignedZero, hasSubnormals: f.hasSubnormals, layout: f.layout };
  },
  /** The SHA-256 of [value in FP64, code of its conversion to the format, next up, next down, class] of every code. */
  every_code(data, daz) {
    const f = format(data), hash = crypto.createHash("sha256"), row = Buffer.alloc(8 * 4 + 1);
    const classes = ["zero", "subnormal", "normal", "infinity", "nan", "signaling_nan"];
    for (let code = 0n; code < 1n << BigInt(f.bits); code++) {
      const x = F.decode(code, f, daz), value = F.isNan(x) ? 0x7ff8000000000000n : F.bitsOfNumber(F.toNumber(x));
      row.writeBigUInt64LE(value, 0);
      row.writeBigUInt64LE(F.convert(x, f).code, 8);
      row.writeBigUInt64LE(F.nextUp(code, f, daz).code, 16);
      row.writeBigUInt64LE(F.nextDown(code, f, daz).code, 24);
      row[32] = classes.indexOf(F.classify(code, f));
      hash.update(row);
    }
    return hash.digest("hex");
  },
  truth(operation, source, target, operands, given) {
    const f = format(source), t = format(target), o = options(given), size = t.bits > 8 ? 2 : 1;
    const n = 1 << f.bits, entries = operands === 2 ? n * n : n;
    const bytes = Buffer.alloc(entries * (size + 1)), numbers = [];
    for (let code = 0; code < n; code++) numbers.push(F.decode(BigInt(code), f));
    for (let i = 0; i < entries; i++) {
      const { code, events } = operands === 2 ? F[operation](numbers[Math.floor(i / n)], numbers[i % n], t, o)
        : F[operation](numbers[i], t, o);
      bytes.writeUIntLE(Number(code), i * size, size);
      bytes[entries * size + i] = events & F.FLAGS;
    }
    return crypto.createHash("sha256").update(bytes).digest("hex");
  },
  /** The SHA-256 of code (8 bytes) and flags (1 byte) of the conversion of each code in a file of uint32. */
  convert_file(file, source, target, given) {
    const f = format(source), t = format(target), o = options(given), bytes = fs.readFileSync(file);
    const hash = crypto.createHash("sha256"), row = Buffer.alloc(9);
    for (let at = 0; at < bytes.length; at += 4) {
      const { code, events } = F.convert(F.decode(BigInt(bytes.readUInt32LE(at)), f, o.daz), t, o);
      row.writeBigUInt64LE(code, 0);
      row[8] = events & F.FLAGS;
      hash.update(row);
    }
    return hash.digest("hex");
  },
  operation(name, operands, target, given) {
    const o = options(given), numbers = operands.map(([code, source]) => F.decode(BigInt(code), format(source), o.daz));
    return plain(F[name](...numbers, format(target), o));
  },
  parse(text) {
    try {
      return number(F.parse(text));
    } catch (error) {
      if (error instanceof F.InputError) return error.key;
      throw error;
    }
  },
  bad_format(w, t, specials, bias) {
    try {
      F.makeFormat("x", w, t, specials, bias);
    } catch (error) {
      if (error instanceof F.InputError) return error.field;
      throw error;
    }
    return null;
  },
  text(code, data) {
    const x = F.decode(BigInt(code), format(data));
    return [F.exactDecimal(x), F.hexText(x)];
  },
  explain(operation, codes, data, given) {
    const told = F.explain(operation, codes.map(BigInt), format(data), options(given));
    return { code: hex(told.code), flags: told.events & F.FLAGS, aligned: told.aligned ?? null,
      normalized: told.normalized ?? null,
      steps: told.steps.map((step) => [step.name,
        step.rows.map((row) => [row.name, row.sign, row.bits, row.first, row.exponent, row.kept ?? null])]) };
  },
  sum(codes, source, order, target, given, draws) {
    const left = (draws || []).map(BigInt), o = { ...options(given), ...(draws && { draw: () => left.shift() }) }, numbers = codes.map((code) => F.decode(BigInt(code), format(source), o.daz));
    return hex(F.sum(numbers, order, format(target), o).code);
  },
  absorbed(codes, source, target) {
    const numbers = codes.map((code) => F.decode(BigInt(code), format(source)));
    const steps = F.sum(numbers, "sequential", format(target)).steps;
    return steps.filter((step) => step.events & F.ABSORBED).map((step) => step.k);
  },
  unit(unit, a, b, c, source, output) {
    const block = F.unitBlock({ ...unit, grid: format(unit.grid) }, a.map(BigInt), b.map(BigInt), BigInt(c),
      format(source), format(output));
    return { code: hex(block.code), events: block.events, exponent: block.exponent ?? null,
      kept: block.kept ? block.kept.map(String) : [] };
  },
  blocks(codes, scheme, formats, fp32) {
    const own = { ...scheme, format: format(formats[0]), scaleFormat: format(formats[1]) };
    const { blocks, tensorScale } = F.quantizeBlocks(codes.map(BigInt), own, format(fp32));
    return { scales: blocks.map((block) => hex(block.scale)), codes: blocks.flatMap((block) => block.codes.map(hex)),
      values: blocks.flatMap((block) => block.values.map((x) => hex(F.bitsOfNumber(F.toNumber(x))))),
      tensorScale: tensorScale === null ? null : hex(F.bitsOfNumber(F.toNumber(tensorScale))) };
  },
};

const jobs = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
fs.writeFileSync(process.argv[3], JSON.stringify(jobs.map(([name, ...rest]) => JOBS[name](...rest))));
