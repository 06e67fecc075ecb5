/* Floating-point formats and operations on exact integers (BigInt). The page and Node.js use this file.
 *
 * It follows floatsim.reference, the specification on exact integers, and is tested equal to floatsim in codes and
 * flags. A code is a BigInt. A number is {kind, sign, significand, exponent, sticky}: the value is
 * (-1)**sign * significand * 2**exponent; with `sticky`, the magnitude lies strictly between significand and
 * significand + 1, times 2**exponent. A result is {code, events}.
 */
"use strict";

const floatsim = (() => {
  const INVALID = 16, DIVIDE_BY_ZERO = 8, OVERFLOW = 4, UNDERFLOW = 2, INEXACT = 1;
  const FLUSHED = 32, SUBNORMAL = 64, ABSORBED = 128; // no IEEE exceptions
  const FLAGS = 31;
  const FLAG_NAMES = [[INVALID, "invalid"], [DIVIDE_BY_ZERO, "divide_by_zero"], [OVERFLOW, "overflow"],
    [UNDERFLOW, "underflow"], [INEXACT, "inexact"]];
  const ROUNDINGS = ["ties_to_even", "ties_to_away", "toward_zero", "toward_positive", "toward_negative", "to_odd",
    "stochastic"];
  const OVERFLOWS = ["infinity", "saturate_finite", "saturate_propagate"];
  const DEFAULTS = Object.freeze({
    rounding: "ties_to_even", overflow: "infinity", daz: false, ftz: false, tininess: "after", randomBits: 32,
    random: 0n,
  });
  const WORKING_BITS = 128; // the precision of every format, all random bits, and a guard bit
  const EXPONENT_LIMIT = 10000; // 2**-10000 and 2**10000 are beyond the range of every format

  // -- integers ---------------------------------------------------------------------------------------------------

  const pow2 = (n) => 1n << BigInt(n);

  function bitLength(n) {
    if (n === 0n) return 0;
    if (n < 9007199254740992n) {
      const x = Number(n);
      return x < 4294967296 ? 32 - Math.clz32(x) : 64 - Math.clz32(Math.floor(x / 4294967296));
    }
    const text = n.toString(16);
    return 4 * (text.length - 1) + 32 - Math.clz32(parseInt(text[0], 16));
  }

  const absolute = (n) => (n < 0n ? -n : n);

  // -- formats ----------------------------------------------------------------------------------------------------

  /** The kinds of special codes: the code of infinity and the canonical NaN by the widths, and whether codes are signed. */
  const SPECIALS = {
    ieee: { infinity: largestExponent, nan: (w, t) => largestExponent(w, t) | pow2(t - 1), signed: true },
    fn: { infinity: null, nan: allOnes, signed: true },
    fnuz: { infinity: null, nan: minusZero, signed: true },
    finite: { infinity: null, nan: null, signed: true },
    scale: { infinity: null, nan: allOnes, signed: false },
    extended: { infinity: allOnes, nan: minusZero, signed: true },
    unsigned_extended: { infinity: (w, t) => allOnes(w, t) - 1n, nan: allOnes, signed: false },
    unsigned_finite: { infinity: null, nan: allOnes, signed: false },
  };
  function allOnes(w, t) { return pow2(w + t) - 1n; }
  function minusZero(w, t) { return pow2(w + t); }
  function largestExponent(w, t) { return (pow2(w) - 1n) << BigInt(t); }

  /** An error about one argument: `field` names it, `key` and `values` are the message for the page's strings. */
  class InputError extends Error {
    constructor(field, key, values = {}) {
      super(`${field}: ${key} ${JSON.stringify(values)}`);
      Object.assign(this, { field, key, values });
    }
  }

  function integerOf(value, field, low, high) {
    const n = Number(value);
    if (!Number.isInteger(n) || n < low || n > high) throw new InputError(field, "bad_width", { value, low, high });
    return n;
  }

  /** Return a format. `bias` null is the default bias of the kind. Raises an InputError as fs.FloatFormat does. */
  function makeFormat(name, exponentBits, trailingBits, specials = "ieee", bias = null, colour = "#7d6bb3") {
    const w = integerOf(exponentBits, "exponent_bits", 1, 11), t = integerOf(trailingBits, "trailing_bits", 0, 52);
    const kind = SPECIALS[specials];
    if (!kind) throw new InputError("specials", "bad_specials", { value: specials });
    if (specials === "ieee" && (t < 1 || w < 2)) throw new InputError("specials", "ieee_needs_bits", {});
    if (specials === "scale" && t !== 0) throw new InputError("trailing_bits", "scale_needs_no_trailing", { value: t });
    const hasZero = specials !== "scale", signed = kind.signed;
    const signMask = signed ? pow2(w + t) : 0n, magnitudeMask = pow2(w + t) - 1n;
    const infinityCode = kind.infinity && kind.infinity(w, t), canonicalNan = kind.nan && kind.nan(w, t);
    const hasSignedZero = signed && canonicalNan !== signMask;
    if (bias === null || bias === "" || bias === undefined) {
      bias = 2 ** (w - 1) - (hasZero && !hasSignedZero ? 0 : 1);
    }
    bias = integerOf(bias, "bias", -100000, 100000);
    const special = [infinityCode, canonicalNan, magnitudeMask + 1n].filter((code) => code !== null);
    const maxCode = special.reduce((a, b) => (a < b ? a : b)) - 1n;
    if (maxCode >> BigInt(t) < (hasZero ? 1n : 0n)) throw new InputError("exponent_bits", "no_normal_number", {});
    const emin = (hasZero ? 1 : 0) - bias, emax = Number(maxCode >> BigInt(t)) - bias;
    if (emax > 1023 || emin - t < -1074) {
      throw new InputError("bias", "beyond_fp64", { bias, emax, quantum: emin - t });
    }
    const layout = [["s", signed ? 1 : 0], ["e", w], ["t", t]].map(([letter, n]) => letter.repeat(n)).join("");
    return Object.freeze({
      name, exponentBits: w, trailingBits: t, specials, bias, colour, signed, hasZero, hasSignedZero, signMask,
      magnitudeMask, infinityCode, canonicalNan, maxCode, emin, emax, layout,
      quietBit: specials === "ieee" ? pow2(t - 1) : 0n,
      isScale: !signed, bits: (signed ? 1 : 0) + w + t, precision: t + 1,
      hasSubnormals: hasZero && t > 0,
    });
  }

  // -- codes to numbers -------------------------------------------------------------------------------------------

  const finite = (sign, significand, exponent, sticky = false) => ({
    kind: "finite", sign, significand, exponent, sticky,
  });
  const NAN = Object.freeze({ kind: "nan", sign: 0, significand: 0n, exponent: 0, sticky: false });
  const infinity = (sign) => ({ kind: "infinite", sign, significand: 0n, exponent: 0, sticky: false });
  const zero = (sign) => finite(sign, 0n, 0);
  const isNan = (x) => x.kind === "nan" || x.kind === "snan";
  const isInfinite = (x) => x.kind === "infinite";
  const isZero = (x) => x.kind === "finite" && x.significand === 0n && !x.sticky;
  const negated = (x) => ({ ...x, sign: 1 - x.sign });
  const leading = (x) => x.exponent + bitLength(x.significand) - 1;

  function decode(code, format, daz = false) {
    const sign = code & format.signMask ? 1 : 0, magnitude = code & format.magnitudeMask;
    if (!format.hasZero) {
      return magnitude > format.maxCode ? NAN : finite(0, 1n, Number(magnitude) - format.bias);
    }
    if (!format.hasSignedZero && code === format.canonicalNan) return NAN;
    if (magnitude > format.maxCode) {
      if (magnitude === format.infinityCode) return infinity(sign);
      const quiet = !format.quietBit || magnitude & format.quietBit;
      return { ...NAN, kind: quiet ? "nan" : "snan", sign };
    }
    const t = BigInt(format.trailingBits), field = magnitude >> t, trailing = magnitude & (pow2(t) - 1n);
    if (field === 0n) return finite(sign, daz ? 0n : trailing, format.emin - format.trailingBits);
    return finite(sign, trailing + pow2(t), Number(field) - format.bias - format.trailingBits);
  }

  /** The exact number n / d, with a sticky bit if it has no short binary expansion. */
  function fromRatio(n, d, signOfZero = 0) {
    if (n === 0n) return zero(signOfZero);
    let sign = 0;
    if (n < 0n) [sign, n] = [1, -n];
    if (d < 0n) [sign, d] = [1 - sign, -d];
    let exponent = bitLength(n) - bitLength(d) - WORKING_BITS;
    if ((d & (d - 1n)) === 0n) exponent = Math.min(exponent, 1 - bitLength(d));
    if (exponent < 0) n <<= BigInt(-exponent);
    else d <<= BigInt(exponent);
    return finite(sign, n / d, exponent, n % d !== 0n);
  }

  /** The value of a finite number as [numerator, denominator]. */
  function ratio(x) {
    const signed = x.sign ? -x.significand : x.significand;
    return x.exponent >= 0 ? [signed << BigInt(x.exponent), 1n] : [signed, pow2(-x.exponent)];
  }

  const HEXADECIMAL = /^([+-]?)0x([0-9a-f]*)\.?([0-9a-f]*)p([+-]?\d+)$/i;
  const DECIMAL = /^([+-]?)(\d+(?:_\d+)*)?(?:\.(\d+(?:_\d+)*)?)?(?:e([+-]?\d+))?$/i;
  const FRACTION = /^[+-]?(\d+)\/(\d+)$/;
  const POWER = /^([+-]?)2(?:\^|\*\*)\(?([+-]?\d{1,5})\)?$/;

  /** The exact number of a text: decimal, C99 hexadecimal, a fraction, 2^k, inf or nan. */
  function parse(text) {
    const body = text.trim().replace(/[−–]/g, "-"), sign = body.startsWith("-") ? 1 : 0;
    const word = body.replace(/^[+-]/, "").toLowerCase();
    if (["inf", "infinity", "∞"].includes(word)) return infinity(sign);
    let match = /^(s?)nan\d*$/.exec(word);
    if (match) return { ...NAN, kind: match[1] ? "snan" : "nan", sign };
    match = HEXADECIMAL.exec(body);
    if (match && match[2] + match[3]) {
      const significand = BigInt(`0x${match[2]}${match[3]}`);
      const far = EXPONENT_LIMIT + bitLength(significand), exponent = Number(match[4]) - 4 * match[3].length;
      return finite(sign, significand, Math.max(-far, Math.min(exponent, far)));
    }
    match = DECIMAL.exec(body);
    if (match && (match[2] || match[3])) {
      const part = (match[3] || "").replaceAll("_", "");
      const digits = ((match[2] || "").replaceAll("_", "") + part).replace(/^0+/, "");
      if (!digits) return zero(sign);
      const scale = Number(match[4] || 0) - part.length;
      if (Math.abs(scale + digits.length) > 5000) { // certain overflow or underflow
        return finite(sign, pow2(WORKING_BITS), scale > 0 ? EXPONENT_LIMIT : -EXPONENT_LIMIT, true);
      }
      const kept = digits.slice(0, 4000), rest = digits.slice(4000), power = scale + rest.length;
      const n = BigInt(kept), ten = 10n ** BigInt(Math.abs(power));
      const x = power >= 0 ? fromRatio(n * ten, 1n) : fromRatio(n, ten);
      return { ...x, sign, sticky: x.sticky || /[1-9]/.test(rest) };
    }
    match = FRACTION.exec(body);
    if (match && /[1-9]/.test(match[2])) return { ...fromRatio(BigInt(match[1]), BigInt(match[2])), sign };
    match = POWER.exec(body);
    if (match) {
      const exponent = Math.max(-EXPONENT_LIMIT, Math.min(Number(match[2]), EXPONENT_LIMIT));
      return finite(sign, 1n, exponent);
    }
    throw new InputError("number", "not_a_number", { value: text });
  }

  // -- numbers to codes -------------------------------------------------------------------------------------------

  const result = (code, events = 0) => ({ code, events });

  function nanResult(format, ...operands) {
    if (format.canonicalNan === null) return result(format.maxCode, INVALID);
    return result(format.canonicalNan, operands.some((x) => x.kind === "snan") ? INVALID : 0);
  }

  const invalid = (format) => result(nanResult(format).code, INVALID);

  function infiniteCode(sign, format) {
    if (sign && format.isScale && format.canonicalNan !== null) return format.canonicalNan;
    const signed = sign ? format.signMask : 0n;
    if (format.infinityCode !== null) return signed | format.infinityCode;
    return format.canonicalNan === null ? signed | format.maxCode : format.canonicalNan;
  }

  function overflowsToInfinity(sign, options) {
    const inward = { toward_zero: true, to_odd: true, toward_positive: sign === 1, toward_negative: sign === 0 };
    return options.overflow === "infinity" && !inward[options.rounding];
  }

  function overflowed(sign, format, options) {
    if (overflowsToInfinity(sign, options) || (options.overflow === "infinity" && !format.hasZero)) {
      return infiniteCode(sign, format);
    }
    return (sign ? format.signMask : 0n) | format.maxCode;
  }

  function roundsUp(x, kept, shift, options) {
    const rest = x.significand & (pow2(shift) - 1n);
    if (rest === 0n && !x.sticky) return false;
    const half = pow2(shift - 1);
    switch (options.rounding) {
      case "ties_to_even": return rest > half || (rest === half && (x.sticky || (kept & 1n) === 1n));
      case "ties_to_away": return rest >= half;
      case "toward_zero": return false;
      case "toward_positive": return x.sign === 0;
      case "toward_negative": return x.sign === 1;
      case "to_odd": return (kept & 1n) === 0n;
      case "stochastic": // floor(fraction * 2**N) + random >= 2**N
        return ((rest << BigInt(options.randomBits)) >> BigInt(shift)) + options.random >= pow2(options.randomBits);
      default: throw new InputError("rounding", "bad_rounding", { value: options.rounding });
    }
  }

  /** Return x in units of 2**lowest, rounded to an integer, and whether that was inexact. */
  function roundSignificand(x, lowest, options) {
    const shift = lowest - x.exponent;
    if (shift <= 0) {
      if (!x.sticky) return [x.significand << BigInt(-shift), false];
      // A sticky bit below the units: one more place makes room for it.
      return roundSignificand({ ...x, significand: (x.significand << BigInt(1 - shift)) | 1n, exponent: lowest - 1 },
        lowest, options);
    }
    const kept = x.significand >> BigInt(shift);
    const inexact = x.sticky || x.significand !== kept << BigInt(shift);
    return [kept + (roundsUp(x, kept, shift, options) ? 1n : 0n), inexact];
  }

  /** Round a finite number to a code: no other function rounds to a format. */
  function roundPack(x, format, options) {
    if (!format.hasZero) return roundPackScale(x, format, options);
    const signed = x.sign ? format.signMask : 0n, zeroCode = format.hasSignedZero ? signed : 0n;
    if (isZero(x)) return result(zeroCode);
    const t = format.trailingBits, emin = format.emin, e = leading(x);
    const [kept, inexact] = roundSignificand(x, Math.max(e, emin) - t, options);
    let tiny = e < emin;
    if (tiny && options.tininess === "after") {
      tiny = e < emin - 1 || roundSignificand(x, e - t, options)[0] < pow2(t + 1);
    }
    if (tiny && options.ftz) return result(zeroCode, UNDERFLOW | INEXACT | FLUSHED);
    const magnitude = (BigInt(Math.max(e, emin) - emin) << BigInt(t)) + kept;
    if (x.sign && magnitude && format.isScale) {
      return overflowsToInfinity(1, options) ? invalid(format) : result(0n, OVERFLOW | INEXACT);
    }
    if (magnitude > format.maxCode) return result(overflowed(x.sign, format, options), OVERFLOW | INEXACT);
    const events = (inexact ? INEXACT : 0) | (tiny && inexact ? UNDERFLOW : 0);
    if (magnitude === 0n) return result(zeroCode, events | FLUSHED);
    return result(signed | magnitude, events | (magnitude >> BigInt(t) === 0n ? SUBNORMAL : 0));
  }

  /** Round to a power of two (OCP MX 1.0, 5.4.1): ties go up; there is no zero and no sign. */
  function roundPackScale(x, format, options) {
    if (x.sign || isZero(x)) return invalid(format);
    const e = leading(x);
    if (e < format.emin) return result(0n, UNDERFLOW | INEXACT);
    const own = options.rounding === "ties_to_even" ? { ...options, rounding: "ties_to_away" } : options;
    const [kept, inexact] = roundSignificand(x, e, own);
    const code = BigInt(e - format.emin) + kept - 1n;
    if (code > format.maxCode) return result(overflowed(0, format, own), OVERFLOW | INEXACT);
    return result(code, inexact ? INEXACT : 0);
  }

  function convert(x, format, options = DEFAULTS) {
    if (isNan(x)) return nanResult(format, x);
    if (isInfinite(x)) {
      if (options.overflow === "saturate_finite" && format.hasZero) {
        return result(x.sign && format.isScale ? 0n : (x.sign ? format.signMask : 0n) | format.maxCode);
      }
      return result(infiniteCode(x.sign, format));
    }
    return roundPack(x, format, options);
  }

  // -- arithmetic -------------------------------------------------------------------------------------------------

  function exactSum(a, b, options) {
    const downward = options.rounding === "toward_negative" ? 1 : 0;
    if (isZero(a) && isZero(b)) return zero(a.sign === b.sign ? a.sign : downward);
    const exponent = Math.min(a.exponent, b.exponent);
    let total = 0n;
    for (const x of [a, b]) {
      const part = x.significand << BigInt(x.exponent - exponent);
      total += x.sign ? -part : part;
    }
    if (total === 0n) return zero(downward);
    return finite(total < 0n ? 1 : 0, absolute(total), exponent);
  }

  const exactProduct = (a, b) => finite(a.sign ^ b.sign, a.significand * b.significand, a.exponent + b.exponent);

  function sameValue(x, y) {
    if (x.kind !== "finite" || y.kind !== "finite") return false;
    if (x.significand === 0n || y.significand === 0n) return x.significand === y.significand;
    const low = Math.min(x.exponent, y.exponent);
    return x.sign === y.sign &&
      x.significand << BigInt(x.exponent - low) === y.significand << BigInt(y.exponent - low);
  }

  function absorbed(code, format, whole, part) {
    return part.kind === "finite" && !isZero(part) && sameValue(decode(code, format), whole) ? ABSORBED : 0;
  }

  function add(a, b, format, options = DEFAULTS) {
    if (isNan(a) || isNan(b)) return nanResult(format, a, b);
    if (isInfinite(a) || isInfinite(b)) {
      if (isInfinite(a) && isInfinite(b) && a.sign !== b.sign) return invalid(format);
      return result(infiniteCode((isInfinite(a) ? a : b).sign, format));
    }
    const { code, events } = roundPack(exactSum(a, b, options), format, options);
    return result(code, events | absorbed(code, format, a, b) | absorbed(code, format, b, a));
  }

  const subtract = (a, b, format, options = DEFAULTS) => add(a, negated(b), format, options);

  function multiply(a, b, format, options = DEFAULTS) {
    if (isNan(a) || isNan(b)) return nanResult(format, a, b);
    if (isInfinite(a) || isInfinite(b)) {
      if (isZero(a) || isZero(b)) return invalid(format);
      return result(infiniteCode(a.sign ^ b.sign, format));
    }
    return roundPack(exactProduct(a, b), format, options);
  }

  /** The exact quotient of finite numbers, b not zero; its bits are cut, with a sticky bit. */
  function exactQuotient(a, b) {
    const low = Math.min(a.exponent, b.exponent), sign = a.sign ^ b.sign;
    if (isZero(a)) return zero(sign);
    const x = fromRatio(a.significand << BigInt(a.exponent - low), b.significand << BigInt(b.exponent - low));
    return { ...x, sign };
  }

  function divide(a, b, format, options = DEFAULTS) {
    const sign = a.sign ^ b.sign;
    if (isNan(a) || isNan(b)) return nanResult(format, a, b);
    if ((isInfinite(a) && isInfinite(b)) || (isZero(a) && isZero(b))) return invalid(format);
    if (isInfinite(a)) return result(infiniteCode(sign, format));
    if (isZero(b)) return result(infiniteCode(sign, format), DIVIDE_BY_ZERO);
    if (isInfinite(b) || isZero(a)) return roundPack(zero(sign), format, options);
    return roundPack(exactQuotient(a, b), format, options);
  }

  function fma(a, b, c, format, options = DEFAULTS) {
    const infiniteProduct = isInfinite(a) || isInfinite(b), sign = a.sign ^ b.sign;
    if (infiniteProduct && (isZero(a) || isZero(b))) return invalid(format);
    if (isNan(a) || isNan(b) || isNan(c)) return nanResult(format, a, b, c);
    if (infiniteProduct) {
      if (isInfinite(c) && c.sign !== sign) return invalid(format);
      return result(infiniteCode(sign, format));
    }
    if (isInfinite(c)) return result(infiniteCode(c.sign, format));
    const product = exactProduct(a, b);
    const { code, events } = roundPack(exactSum(product, c, options), format, options);
    return result(code, events | absorbed(code, format, c, product));
  }

  const OPERATIONS = { add, subtract, multiply, divide, fma };

  // -- neighbours -------------------------------------------------------------------------------------------------

  function next(code, format, up, daz = false) {
    const a = decode(code, format, daz);
    if (isNan(a)) return nanResult(format, a);
    const toward = up ? 1n : -1n, magnitude = code & format.magnitudeMask;
    const here = isZero(a) ? 0n : code & format.signMask ? -magnitude : magnitude;
    const ofOrdinal = (n) => (n >= 0n ? n : format.signMask | -n);
    if (absolute(here) > format.maxCode) return result(here > 0n === up ? code : ofOrdinal(here + toward));
    const there = here + toward;
    if (format.isScale && there < 0n) return nanResult(format);
    if (absolute(there) > format.maxCode) return result(infiniteCode(up ? 0 : 1, format));
    if (there === 0n) return result(up && format.hasSignedZero ? format.signMask : 0n);
    return result(ofOrdinal(there));
  }

  const nextUp = (code, format, daz = false) => next(code, format, true, daz);
  const nextDown = (code, format, daz = false) => next(code, format, false, daz);

  /** "zero", "subnormal", "normal", "infinity", "nan" or "signaling_nan". */
  function classify(code, format) {
    const x = decode(code, format);
    if (isNan(x)) return x.kind === "snan" ? "signaling_nan" : "nan";
    if (isInfinite(x)) return "infinity";
    if (isZero(x)) return "zero";
    return leading(x) < format.emin ? "subnormal" : "normal";
  }

  // -- text -------------------------------------------------------------------------------------------------------

  const bitText = (code, format) => (format.bits ? code.toString(2).padStart(format.bits, "0") : "");
  const codeText = (code, format) => `0x${code.toString(16).toUpperCase().padStart(Math.ceil(format.bits / 4), "0")}`;

  /** A finite number with at most 53 significant bits in float64's range as a JavaScript number, exactly. */
  function toNumber(x) {
    if (isNan(x)) return NaN;
    if (isInfinite(x)) return x.sign ? -Infinity : Infinity;
    if (x.significand === 0n) return x.sign ? -0 : 0;
    // Through FP64's own rounding, so that longer numbers are rounded once.
    const { code } = roundPack(x, FP64, DEFAULTS);
    return numberOfBits(code);
  }

  const buffer = new DataView(new ArrayBuffer(8));
  function numberOfBits(code) {
    buffer.setBigUint64(0, code);
    return buffer.getFloat64(0);
  }
  function bitsOfNumber(x) {
    buffer.setFloat64(0, x);
    return buffer.getBigUint64(0);
  }
  const FP64 = makeFormat("FP64", 11, 52);
  const fromNumber = (x) => decode(bitsOfNumber(x), FP64);

  /** All digits of a finite number in decimal, without an exponent. A sticky number ends with "...". */
  function exactDecimal(x) {
    const sign = x.sign ? "-" : "";
    if (x.exponent >= 0) return `${sign}${x.significand << BigInt(x.exponent)}${x.sticky ? "..." : ""}`;
    const places = -x.exponent, digits = (x.significand * 5n ** BigInt(places)).toString().padStart(places + 1, "0");
    const whole = digits.slice(0, -places), part = digits.slice(-places).replace(x.sticky ? /$^/ : /0+$/, "");
    return `${sign}${whole}${part ? `.${part}` : ""}${x.sticky ? "..." : ""}`;
  }

  /** C99 hexadecimal text, as Python's float.hex: 0x1.8p+3. */
  function hexText(x) {
    const sign = x.sign ? "-" : "";
    if (isNan(x)) return "nan";
    if (isInfinite(x)) return `${sign}inf`;
    if (x.significand === 0n) return `${sign}0x0.0p+0`;
    const n = bitLength(x.significand), e = x.exponent + n - 1, pad = (4 - ((n - 1) % 4)) % 4;
    const digits = (x.significand << BigInt(pad)).toString(16), part = digits.slice(1).replace(/0+$/, "");
    return `${sign}0x1${part ? `.${part}` : ""}p${e < 0 ? "-" : "+"}${Math.abs(e)}`;
  }

  /** A number in at most `digits` significant decimal digits (rounded), for tables. Exact where it is short. */
  function shortDecimal(x, digits = 9) {
    if (isNan(x)) return "NaN";
    if (isInfinite(x)) return x.sign ? "-inf" : "+inf";
    if (x.significand === 0n) return x.sign ? "-0" : "0";
    const e = leading(x);
    if (e < -1074 || e > 1023) return `${x.sign ? "-" : ""}2^${e}..`;
    const value = toNumber(x), text = String(Number(value.toPrecision(digits)));
    return text.replace("e+", "e");
  }

  /** The distance of two numbers as an exact number, a - b. */
  function difference(a, b) {
    return exactSum(a, negated(b), DEFAULTS);
  }

  // -- one operation step by step, with the rows of fs.explain_add -------------------------------------------------

  const row = (name, sign, bits, first, exponent, more = {}) => ({ name, sign, bits, first, exponent, ...more });

  function term(name, sign, significand, places, exponent, whole = 1) {
    return { name, sign, significand, places, exponent, whole, last: exponent - places };
  }

  function termRow(x, exponent = x.exponent, more = {}) {
    const behind = exponent - x.last, width = Math.max(behind + x.whole, bitLength(x.significand));
    return row(x.name, x.sign, x.significand.toString(2).padStart(width, "0"), width - behind - 1, exponent, more);
  }

  const termOf = (name, x, format) =>
    term(name, x.sign, x.significand, format.trailingBits, x.exponent + format.trailingBits);

  /** The rounding of a finite number to a format: the kept bits, guard, sticky, and how it was decided. */
  function explainRounding(x, format, options) {
    const t = format.trailingBits, e = leading(x), scale = Math.max(e, format.emin);
    let shift = scale - t - x.exponent, significand = x.significand;
    if (shift <= 0) [significand, shift] = [significand << BigInt(1 - shift), 1];
    const kept = significand >> BigInt(shift), rest = significand & (pow2(shift) - 1n);
    const guard = Number(rest >> BigInt(shift - 1)), sticky = x.sticky || (rest & (pow2(shift - 1) - 1n)) !== 0n ? 1 : 0;
    const [rounded, inexact] = roundSignificand(x, scale - t, options);
    const up = rounded > kept;
    const position = !inexact ? "exact" : guard && !sticky ? "half" : guard ? "more" : "less";
    const fraction = toNumber(finite(0, rest, -shift));
    return { scale, kept, guard, sticky, rounded, up, position, inexact, fraction };
  }

  /** Return {steps, code, events, exact}. A step is {name, key, values, rows}. */
  function explain(operation, codes, format, options = DEFAULTS) {
    const names = ["a", "b", "c"], numbers = codes.map((code) => decode(code, format, options.daz));
    const outcome = OPERATIONS[operation](...numbers, format, options);
    const steps = [], told = { operation, format, numbers, ...outcome, steps };
    const zeroed = codes.map((code, i) => options.daz && isZero(numbers[i]) && !isZero(decode(code, format)));
    if (numbers.some((x) => x.kind !== "finite") || (operation === "divide" && isZero(numbers[1]))) {
      steps.push({ name: "special", key: "special_values", values: {}, rows: [] });
      return told;
    }
    const effective = numbers.map((x, i) => (operation === "subtract" && i === 1 ? negated(x) : x));
    let terms = effective.map((x, i) => termOf(names[i], x, format));
    steps.push({ name: "unpack", key: operation === "subtract" ? "unpack_negated" : "unpack", values: {},
      rows: terms.map((x, i) => termRow(x, x.exponent, { code: codes[i], zeroed: zeroed[i] })) });
    if (operation === "divide") return explainQuotient(told, terms, effective, options);
    if (operation === "multiply" || operation === "fma") {
      const [a, b, ...rest] = terms;
      const product = term("product", a.sign ^ b.sign, a.significand * b.significand, a.places + b.places,
        a.exponent + b.exponent, 2);
      steps.push({ name: "multiply", key: product.significand ? "multiply" : "multiply_zero",
        values: { a: a.exponent, b: b.exponent, sum: product.exponent }, rows: [termRow(product)] });
      terms = [product, ...rest];
    }
    let whole = terms[0], at = whole.exponent;
    if (terms.length > 1) {
      const [large, small] = [...terms].sort((x, y) =>
        (y.significand !== 0n) - (x.significand !== 0n) || y.exponent - x.exponent);
      at = large.exponent;
      const rows = terms.map((x) => (x.significand ? termRow(x, at) : termRow(x)));
      if (small.significand) {
        told.aligned = at - small.exponent;
        const beyond = small.last + bitLength(small.significand) - 1 < large.last;
        steps.push({ name: "align", key: told.aligned ? (beyond ? "align_beyond" : "align") : "align_none",
          values: { small: small.name, large: large.name, places: told.aligned, from: small.exponent, to: at }, rows });
      }
      const counted = terms.some((x) => x.significand) ? terms.filter((x) => x.significand) : terms;
      const last = Math.min(...counted.map((x) => x.last));
      let total = 0n;
      for (const x of counted) {
        const part = x.significand << BigInt(x.last - last);
        total += x.sign ? -part : part;
      }
      const sign = total ? (total < 0n ? 1 : 0) : decode(outcome.code, format).sign;
      whole = term("sum", sign, absolute(total), at - last, at);
      const key = !large.significand ? "add_zeros" : !small.significand ? "add_zero"
        : large.sign === small.sign ? "add_same" : whole.significand ? "add_opposite" : "add_cancel";
      steps.push({ name: "add", key, values: { small: small.name, large: large.name }, rows: [...rows, termRow(whole)] });
    }
    finish(told, whole, at, finite(whole.sign, whole.significand, whole.last), options);
    return told;
  }

  /** The quotient of significands: its integer bits as far as the format and one guard bit, then a sticky bit. */
  function explainQuotient(told, [a, b], numbers, options) {
    const { format, steps } = told, exact = exactQuotient(...numbers);
    const exponent = a.exponent - b.exponent;
    if (isZero(exact)) {
      finish(told, term("quotient", exact.sign, 0n, 0, exponent), exponent, exact, options);
      return told;
    }
    const places = exponent - exact.exponent, shown = term("quotient", exact.sign, exact.significand, places, exponent);
    steps.push({ name: "divide", key: exact.sticky ? "divide_sticky" : "divide",
      values: { a: a.exponent, b: b.exponent, difference: exponent },
      rows: [termRow(shown, exponent, { sticky: exact.sticky })] });
    finish(told, shown, exponent, exact, options);
    return told;
  }

  function finish(told, whole, at, exact, options) {
    const { format, steps } = told;
    told.exact = exact;
    if (exact.significand === 0n) {
      steps.push({ name: "result", key: "result", values: {}, rows: [] });
      return;
    }
    const first = leading(exact), scale = Math.max(first, format.emin);
    const places = Math.max(scale - whole.last, format.trailingBits);
    const normal = term(whole.name, whole.sign, whole.significand << BigInt(places - (scale - whole.last)), places, scale);
    const shift = scale - at;
    told.normalized = shift;
    const key = first < format.emin ? "normalize_subnormal" : !shift ? "normalize_none"
      : shift > 0 ? "normalize_right" : "normalize_left";
    steps.push({ name: "normalize", key, values: { places: Math.abs(shift), scale, leading: first },
      rows: [termRow(normal, scale, { sticky: exact.sticky })] });
    const rounding = explainRounding(exact, format, options);
    told.rounding = rounding;
    const t = format.trailingBits, digits = rounding.rounded.toString(2).padStart(t + 1, "0");
    steps.push({ name: "round", key: "round", values: { p: t + 1, ...rounding },
      rows: [{ ...termRow(normal), kept: t, sticky: exact.sticky },
        row("rounded", normal.sign, digits, digits.length - t - 1, scale)] });
    const number = decode(told.code, format);
    steps.push({ name: "result", key: "result", values: {},
      rows: number.kind === "finite" ? [termRow(termOf("result", number, format))] : [] });
  }

  // -- sums -------------------------------------------------------------------------------------------------------

  const ONE = finite(0, 1n, 0);

  /** acc + x; ABSORBED if a finite accumulator keeps its value although x is not zero. */
  const accumulate = (acc, x, format, options) => fma(x, ONE, acc, format, options);

  const without = ({ code, events }) => result(code, events & ~ABSORBED);

  /** The options of one rounding: with `draw`, each rounding has a random number of its own. */
  const drawn = (options) => (options.draw ? { ...options, random: options.draw() } : options);

  /** Orders of a sum by name: (numbers, format, options, note) => code. `note(k, code, events)` reports each addition. */
  const ORDERS = {
    sequential(numbers, format, options, note) {
      let acc = 0n;
      numbers.forEach((x, k) => {
        const { code, events } = accumulate(decode(acc, format, options.daz), x, format, drawn(options));
        acc = code;
        note(k, acc, events);
      });
      return acc;
    },
    reverse(numbers, format, options, note) {
      return ORDERS.sequential([...numbers].reverse(), format, options, note);
    },
    pairwise(numbers, format, options, note) {
      if (!numbers.length) return 0n;
      let level = numbers, done = 0;
      if (level.length === 1) {
        const { code, events } = multiply(level[0], ONE, format, drawn(options));
        note(0, code, events);
        return code;
      }
      for (;;) {
        const above = [];
        for (let i = 0; i + 1 < level.length; i += 2) {
          const { code, events } = without(add(level[i], level[i + 1], format, drawn(options)));
          note(done++, code, events);
          if (level.length === 2) return code;
          above.push(decode(code, format, options.daz));
        }
        if (level.length % 2) above.push(level[level.length - 1]);
        level = above;
      }
    },
    kahan(numbers, format, options, note) {
      const read = (code) => decode(code, format, options.daz);
      let s = 0n, comp = 0n;
      numbers.forEach((x, k) => {
        const y = subtract(x, read(comp), format, drawn(options)), t = accumulate(read(s), read(y.code), format, drawn(options));
        if (read(t.code).kind === "finite") {
          const high = subtract(read(t.code), read(s), format, drawn(options));
          comp = subtract(read(high.code), read(y.code), format, drawn(options)).code;
        } else comp = 0n;
        s = t.code;
        note(k, s, (y.events | t.events) & ~ABSORBED);
      });
      return s;
    },
    exact(numbers, format, options, note) {
      const { code, events } = numbers.every((x) => x.kind === "finite")
        ? roundPack(exactTotal(numbers, options), format, drawn(options))
        : specialTotal(numbers, format);
      if (numbers.length) note(numbers.length - 1, code, events);
      return code;
    },
  };

  /** The sum of numbers of which at least one is infinite or NaN. */
  function specialTotal(numbers, format) {
    const signs = new Set(numbers.filter(isInfinite).map((x) => x.sign));
    if (numbers.some(isNan)) return nanResult(format, ...numbers);
    return signs.size === 2 ? invalid(format) : result(infiniteCode([...signs][0], format));
  }

  /** The exact sum of finite numbers. */
  function exactTotal(numbers, options = DEFAULTS) {
    if (!numbers.length) return zero(0);
    let low = Infinity;
    for (const x of numbers) if (x.significand && x.exponent < low) low = x.exponent;
    if (low === Infinity) low = 0;
    let total = 0n;
    for (const x of numbers) {
      if (!x.significand) continue;
      const part = x.significand << BigInt(x.exponent - low);
      total += x.sign ? -part : part;
    }
    if (total) return finite(total < 0n ? 1 : 0, absolute(total), low);
    const signs = new Set(numbers.map((x) => x.sign));
    if (signs.size === 1 && numbers.every(isZero)) return zero(numbers[0].sign);
    return zero(options.rounding === "toward_negative" ? 1 : 0);
  }

  /** Return {code, steps}: the running sum, one {k, code, events} for each addition. */
  function sum(numbers, order, format, options = DEFAULTS) {
    const steps = [], code = ORDERS[order](numbers, format, options, (k, running, events) => {
      steps.push({ k, code: running, events });
    });
    return { code, steps };
  }

  // -- one block of a matrix unit ---------------------------------------------------------------------------------

  /** Return a code as a term of the unit: the exponent of a subnormal number is emin, and zeros have none. */
  function unitTerm(code, format) {
    const number = decode(code, format);
    return { number, exponent: number.kind !== "finite" || isZero(number) ? null : number.exponent + format.trailingBits };
  }

  function unitProduct(a, b) {
    const x = a.number, y = b.number;
    if ((isInfinite(x) && isZero(y)) || (isZero(x) && isInfinite(y)) || x.kind === "snan" || y.kind === "snan") {
      return { number: { ...NAN, kind: "snan" }, exponent: null };
    }
    if (isNan(x) || isNan(y)) return { number: NAN, exponent: null };
    if (isInfinite(x) || isInfinite(y)) return { number: infinity(x.sign ^ y.sign), exponent: null };
    const known = a.exponent !== null && b.exponent !== null;
    return { number: exactProduct(x, y), exponent: known ? a.exponent + b.exponent : null };
  }

  function cut(x, quantum) {
    const shift = x.exponent - quantum;
    const magnitude = shift >= 0 ? x.significand << BigInt(shift) : x.significand >> BigInt(-shift);
    return x.sign ? -magnitude : magnitude;
  }

  /** One block of NVIDIA's unit: `unit` has terms, fractionBits, floor, grid and rounding; c and D are of `output`. */
  function unitBlock(unit, a, b, c, format, output) {
    const terms = a.map((x, k) => unitProduct(unitTerm(x, format), unitTerm(b[k], format)));
    terms.push(unitTerm(c, output));
    const special = terms.map((x) => x.number).filter((x) => x.kind !== "finite");
    if (special.length) {
      const signs = new Set(special.filter(isInfinite).map((x) => x.sign));
      const bad = special.some(isNan) || signs.size === 2;
      const quiet = special.some(isNan) && special.every((x) => x.kind !== "snan");
      const code = bad ? output.magnitudeMask : (special[0].sign ? output.signMask : 0n) | output.infinityCode;
      return { code, events: bad && !quiet ? INVALID : 0, terms };
    }
    const exponent = Math.max(unit.floor, ...terms.filter((x) => x.exponent !== null).map((x) => x.exponent));
    const quantum = exponent - unit.fractionBits, kept = terms.map((x) => cut(x.number, quantum));
    const total = kept.reduce((x, y) => x + y, 0n), sign = total < 0n ? 1 : 0;
    const grid = unit.grid, rounded = roundPack(finite(sign, absolute(total), quantum), grid,
      { ...DEFAULTS, rounding: unit.rounding });
    let code = rounded.code;
    if (rounded.events & OVERFLOW) code = (sign ? grid.signMask : 0n) | grid.infinityCode;
    if (!(code & grid.magnitudeMask)) code = 0n;
    const lost = terms.map((x, k) => !sameValue(x.number, finite(kept[k] < 0n ? 1 : 0, absolute(kept[k]), quantum)));
    const whole = terms.map((x, k) => kept[k] === 0n && !isZero(x.number));
    let events = rounded.events | (lost.some(Boolean) ? INEXACT : 0) | (whole.some(Boolean) ? ABSORBED : 0);
    if (whole.some(Boolean) && kept.every((n) => n === 0n)) events |= FLUSHED | UNDERFLOW;
    return { code: code << BigInt(output.trailingBits - grid.trailingBits), events, terms, exponent, quantum, kept,
      total, lost, absorbed: whole };
  }

  // -- blocks with scales -----------------------------------------------------------------------------------------

  /** Quantize FP32 codes. `scheme` has format, block (null: the tensor), scaleFormat, rule, factor; all with FP32. */
  function quantizeBlocks(codes, scheme, fp32) {
    const saturating = { ...DEFAULTS, overflow: "saturate_finite" };
    const read = (code) => decode(code, fp32), to = (x, format, options = saturating) => convert(x, format, options).code;
    const round = (operation, x, y, options = DEFAULTS) => decode(operation(x, y, fp32, options).code, fp32);
    const one = ONE, number = (x) => read(to(x, fp32)), largest = decode(scheme.format.maxCode, scheme.format);
    const size = scheme.block || codes.length, blocks = [];
    const amaxOf = (part) => part.reduce((most, code) => {
      const magnitude = code & fp32.magnitudeMask;
      return magnitude > most ? magnitude : most;
    }, 0n);
    let tensorScale = null, sixth = null;
    if (scheme.rule === "nvfp4") {
      const amax = read(amaxOf(codes));
      let encode = isZero(amax) ? one : round(divide, finite(0, 2688n, 0), amax, saturating);
      if (isZero(encode)) encode = one;
      tensorScale = round(divide, one, encode);
      sixth = round(multiply, encode, round(divide, one, finite(0, 6n, 0)));
    }
    for (let start = 0; start < codes.length; start += size) {
      const part = codes.slice(start, start + size), amax = read(amaxOf(part));
      let scale, factor, operation = scheme.factor === "divide" ? divide : multiply;
      if (scheme.rule === "absmax") {
        scale = to(round(divide, amax, number(largest)), scheme.scaleFormat);
        if (scheme.scaleFormat.hasZero && isZero(decode(scale, scheme.scaleFormat))) scale = 1n;
        if (isZero(amax)) scale = to(one, scheme.scaleFormat);
        factor = number(decode(scale, scheme.scaleFormat));
      } else if (scheme.rule === "floor") {
        const bottom = scheme.scaleFormat.emin, e = isZero(amax) ? -Infinity : leading(amax) - leading(largest);
        const clamped = Math.max(bottom, Math.min(e, scheme.scaleFormat.emax));
        scale = BigInt(clamped - bottom);
        factor = decode(scale, scheme.scaleFormat);
      } else {
        scale = to(round(multiply, amax, sixth, saturating), scheme.scaleFormat);
        const product = round(multiply, decode(scale, scheme.scaleFormat), tensorScale);
        factor = isZero(product) ? decode(fp32.maxCode, fp32) : round(divide, one, product, saturating);
        operation = multiply;
      }
      const elements = part.map((code) => to(round(operation, read(code), factor), scheme.format));
      let whole = number(decode(scale, scheme.scaleFormat));
      if (tensorScale !== null) whole = round(multiply, whole, tensorScale);
      const values = elements.map((code) => round(multiply, decode(code, scheme.format), whole));
      blocks.push({ start, amax, scale, codes: elements, values });
    }
    return { blocks, tensorScale };
  }

  return {
    INVALID, DIVIDE_BY_ZERO, OVERFLOW, UNDERFLOW, INEXACT, FLUSHED, SUBNORMAL, ABSORBED, FLAGS, FLAG_NAMES, ROUNDINGS,
    OVERFLOWS, DEFAULTS, SPECIALS, OPERATIONS, ORDERS, InputError, makeFormat, decode, fromRatio, ratio, parse, convert,
    add, subtract, multiply, divide, fma, nextUp, nextDown, classify, bitText, codeText, toNumber, fromNumber,
    bitsOfNumber, exactDecimal, hexText, shortDecimal, difference, exactQuotient, explain, explainRounding, sum,
    exactTotal, unitBlock, quantizeBlocks, bitLength, leading, negated, isZero, isNan, isInfinite, finite, sameValue,
    infinity, zero, NAN, roundPack,
  };
})();

if (typeof module !== "undefined") module.exports = floatsim;
