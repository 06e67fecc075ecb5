/* The page: a state of texts, one function for each section that returns elements, and a render that keeps the focus.
 *
 * The state is the permalink: every text that differs from its default is in location.hash.
 */
"use strict";

(() => {
  const F = floatsim;
  const SECTIONS = ["bits", "operations", "sums", "hopper", "codes", "histogram", "blocks", "tasks"];
  const WITH_OPTIONS = ["bits", "operations", "sums"];
  const THEMES = ["auto", "light", "dark", "projector"];
  const CUSTOM = "custom";
  const MOST_TERMS = 20000, MOST_NUMBERS = 5000, MOST_ELEMENTS = 128, MORE_PLACES = 20, MOST_DIGITS = 40;

  const NAMED = DATA.formats.map((x) => F.makeFormat(x.name, x.exponentBits, x.trailingBits, x.specials, x.bias, x.colour));
  const FP32 = NAMED.find((x) => x.name === "FP32");

  const { lang, dataset } = document.documentElement;
  const DEFAULTS = { ...DATA.state, l: lang, th: dataset.theme };
  const CHOICES = { s: SECTIONS, r: DATA.roundings, o: DATA.overflows, tin: DATA.tininess, l: ["en", "zh"], th: THEMES,
    f: () => names(), acc: () => names(), g: () => names(), hf: () => names(), ck: Object.keys(F.SPECIALS),
    op: Object.keys(F.OPERATIONS), tk: ["constant", "harmonic", "random", "alternating", "list"],
    or: Object.keys(F.ORDERS), u: DATA.instructions.map(unitKey), hp: ["small", "cancel", "random", "own"],
    hd: ["gradients", "weights", "outliers", "own"], ftz: ["", "1"], daz: ["", "1"] };
  const state = { ...DEFAULTS };
  const problems = {};
  let change = null, notice = "", custom = F.makeFormat(CUSTOM, 4, 2);
  let bitAt = 0, shown = "";

  // -- texts and elements -----------------------------------------------------------------------------------------

  function T(key, values = {}) {
    const entry = STRINGS[key];
    if (!entry) throw new Error(`no text ${key}`);
    return entry[state.l === "zh" ? 1 : 0].replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
  }

  const HANDLERS = ["onclick", "oninput", "onchange", "onkeydown", "onfocus", "onpointerenter"];
  const PROPERTIES = ["value", "checked", "disabled", "selected"];

  function h(tag, props = {}, ...children) {
    const svg = h.svg.has(tag);
    const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(props)) {
      if (value === null || value === undefined || value === false) continue;
      if (HANDLERS.includes(name)) element[name] = value;
      else if (PROPERTIES.includes(name)) element[name] = value;
      else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return element;
  }
  h.svg = new Set(["svg", "polyline", "line", "rect", "text", "g"]);

  /** Make the children of `old` those of `fresh`, and keep the elements that are alike: focus and drags survive. */
  function morph(old, fresh) {
    const before = [...old.childNodes], after = [...fresh.childNodes];
    after.forEach((node, i) => {
      const there = before[i];
      if (!there) old.append(node);
      else if (there.nodeType !== node.nodeType || there.nodeName !== node.nodeName || there.id !== node.id) {
        there.replaceWith(node);
      } else if (node.nodeType === Node.TEXT_NODE) {
        if (there.data !== node.data) there.data = node.data;
      } else {
        for (const { name } of [...there.attributes]) if (!node.hasAttribute(name)) there.removeAttribute(name);
        for (const { name, value } of [...node.attributes]) {
          if (there.getAttribute(name) !== value) there.setAttribute(name, value);
        }
        for (const name of HANDLERS) there[name] = node[name];
        morph(there, node);
        for (const name of PROPERTIES) if (name in node && there[name] !== node[name]) there[name] = node[name];
      }
    });
    before.slice(after.length).forEach((node) => node.remove());
  }

  function put(id, ...children) {
    morph(document.getElementById(id), h("div", {}, ...children));
  }

  // -- controls ---------------------------------------------------------------------------------------------------

  /** Set texts of the state. What an option changed is shown until the next edit of something else. */
  function set(texts) {
    Object.assign(state, texts);
    change = null;
    notice = "";
    update();
  }

  /** Set an option, and compare the results of the section before and after. */
  function setOption(key, value, label, words) {
    const before = results(), from = words(state[key]);
    state[key] = value;
    const after = results(), old = new Map();
    for (const [name, text] of after) if (before.has(name) && before.get(name) !== text) old.set(name, before.get(name));
    change = { label, from, to: words(value), old, after, total: after.size };
    notice = "";
    update();
  }

  const problemOf = (id) => (problems[id] ? h("span", { class: "problem", id: `${id}-problem` }, problems[id]) : null);

  function field(id, label, value, onInput, more = {}) {
    const { tag = "input", wide = false, ...props } = more;
    return h("label", { class: wide ? "field wide" : "field" }, label,
      h(tag, { id, value, autocomplete: "off", spellcheck: "false", "aria-invalid": problems[id] ? "true" : null,
        "aria-describedby": problems[id] ? `${id}-problem` : null, oninput: (event) => onInput(event.target.value),
        ...props }), problemOf(id));
  }

  const input = (id, label, key, more = {}) =>
    field(id, label, state[key], (text) => set({ [key]: text, ...(more.also || {}) }), { size: 14, ...more, also: null });

  function choose(id, label, key, options, onChange = (value) => set({ [key]: value })) {
    return h("label", { class: "field" }, label, h("select", { id, value: state[key], onchange: (event) => onChange(event.target.value) },
      options.map(([value, text]) => h("option", { value, selected: value === state[key] }, text))), problemOf(id));
  }

  const slider = (id, label, key, low, high, step = 1) => h("label", { class: "field" }, label,
    h("input", { id, type: "range", min: low, max: high, step, value: state[key],
      oninput: (event) => set({ [key]: event.target.value }) }));

  const button = (id, text, onclick, more = {}) => h("button", { id, type: "button", onclick, ...more }, text);

  // -- reading the state ------------------------------------------------------------------------------------------

  function names() { return [...NAMED.map((x) => x.name), CUSTOM]; }
  const formatOf = (name) => (name === CUSTOM ? custom : NAMED.find((x) => x.name === name));
  const label = (format) => (format.name === CUSTOM ? T("custom") : format.name);
  const formatChoices = (keep = () => true) => names().filter((name) => keep(formatOf(name)))
    .map((name) => [name, label(formatOf(name))]);

  function options() {
    const draw = Math.min(Math.max(Number(state.d) || 0, 0), 0.9999999998);
    return { ...F.DEFAULTS, rounding: state.r, overflow: state.o, ftz: Boolean(state.ftz), daz: Boolean(state.daz),
      tininess: state.tin, random: BigInt(Math.floor(draw * 4294967296)) };
  }

  const valid = new Map();

  /** Return what `read` returns. If the text is bad: the last valid value or null, and a message beside the field. */
  function tried(id, read) {
    const key = [id, state.f, state.g, state.u].join(" ");
    try {
      const value = read();
      valid.set(key, value);
      return value;
    } catch (error) {
      if (!(error instanceof F.InputError)) throw error;
      problems[id] = T(error.key, error.values);
      return valid.get(key) ?? null;
    }
  }

  function parseCode(text, format) {
    const body = text.trim();
    let code = null;
    if (/^(0x[0-9a-f]+|0b[01]+|\d+)$/i.test(body)) code = BigInt(body);
    if (code === null || code >= 1n << BigInt(format.bits)) {
      throw new F.InputError("code", "not_a_code", { value: text, bits: format.bits,
        example: format.maxCode.toString(16).toUpperCase() });
    }
    return code;
  }

  const isCode = (text) => /^\s*0[xb][0-9a-f]*\s*$/i.test(text);

  /** An operand: a code of the format, or a number that is rounded to it first, ties to even. */
  function operand(text, format) {
    if (isCode(text)) return { code: parseCode(text, format), rounded: false };
    const x = F.parse(text), { code, events } = F.convert(x, format);
    return { code, rounded: (events & F.INEXACT) !== 0 };
  }

  function parseList(text, most) {
    const parts = text.split(/[\s,;，；、[\]()]+/).filter(Boolean);
    if (parts.length > most) throw new F.InputError("list", "too_many", { most, count: parts.length });
    return parts.map(F.parse);
  }

  function readCustom() {
    for (const id of ["cw", "ct", "ck", "cb"]) delete problems[id];
    const home = { exponent_bits: "cw", trailing_bits: "ct", specials: "ck", bias: "cb" };
    try {
      custom = F.makeFormat(CUSTOM, state.cw.trim() || "x", state.ct.trim() || "x", state.ck, state.cb.trim() || null);
    } catch (error) {
      if (!(error instanceof F.InputError)) throw error;
      problems[home[error.field]] = T(error.key, error.values);
    }
  }

  // -- texts of numbers -------------------------------------------------------------------------------------------

  /** The shortest text that is this number in FP64; numbers of formats are exact in it. */
  function plain(x) {
    if (F.isNan(x)) return "NaN";
    if (F.isInfinite(x)) return x.sign ? "−∞" : "+∞";
    const e = F.leading(x);
    if (x.significand && (e < -1074 || e > 1023)) return `${x.sign ? "−" : ""}2^${e}…`;
    const value = F.toNumber(x);
    return (Object.is(value, -0) ? "-0" : String(value)).replace("-", "−").replace("e−", "e-").replace("e+", "e").replace(/e−/, "e-");
  }
  const short = (x, digits = 6) => (x.kind === "finite" ? F.shortDecimal(x, digits).replace(/^-/, "−") : plain(x));
  const percent = (share) => `${(100 * share).toFixed(share && share < 0.001 ? 3 : 1)}${T("percent")}`;
  const numeric = (x) => (x === 0 ? "0" : Number.isFinite(x) ? String(Number(x.toPrecision(4))).replace("-", "−").replace("e−", "e-") : "–");

  const digitsOf = (text) => text.replace(/e.*$/, "").replace(/\D/g, "").replace(/^0+|0+$/g, "");
  /** Whether a decimal text of x has all its digits: "=", otherwise "≈". */
  const relation = (x, text) => (x.kind !== "finite" || (!x.sticky && digitsOf(text) === digitsOf(F.exactDecimal(x))) ? "=" : "≈");

  /** "= " and all digits of x, or "≈ " and the first ones where there are too many. */
  function equals(x) {
    const text = short(x, 12);
    if (relation(x, text) === "=") return `= ${text}`;
    const all = F.exactDecimal(x);
    return all.length > MOST_DIGITS || x.sticky ? `≈ ${text}` : `= ${all.replace("-", "−")}`;
  }

  const flagNames = (events) => F.FLAG_NAMES.filter(([bit]) => events & bit)
    .map(([, name]) => T(name === "overflow" ? "flag_overflow" : name));
  const flagText = (events) => flagNames(events).join(T("comma")) || T("none");

  function ulpExponent(x, format) {
    if (x.kind !== "finite") return null;
    return (x.significand ? Math.max(F.leading(x), format.emin) : format.emin) - format.trailingBits;
  }

  function spacingText(ulp) {
    const x = F.finite(0, 1n, ulp), text = plain(x);
    return `2^${ulp} ${relation(x, text)} ${text}`;
  }

  function errorText(x, exact, format) {
    if (x.kind !== "finite" || exact.kind !== "finite") return "";
    const d = F.difference(x, exact);
    if (F.isZero(d) && !exact.sticky) return T("exact");
    const sign = d.sign ? "" : "+", scaled = { ...d, exponent: d.exponent - ulpExponent(x, format) };
    const error = short(d, 4), ulps = numeric(F.toNumber(scaled)), whole = relation(d, error) === "=";
    return T("error_of", { error: `${sign}${error}`, ulps: `${sign}${ulps}`, relation: whole ? relation(scaled, ulps) : "≈" });
  }

  // -- bits -------------------------------------------------------------------------------------------------------

  /** The number that the section shows, and the code of the main format. */
  function readBits() {
    const format = formatOf(state.f), given = options();
    if (state.c) {
      const code = tried("code", () => parseCode(state.c, format)) ?? 0n;
      const number = F.decode(code, format, given.daz);
      return { format, code, number, source: "code", events: 0 };
    }
    const number = tried("number", () => F.parse(state.x)) ?? F.zero(0);
    return { format, number, source: "typed", ...F.convert(number, format, given) };
  }

  function rowsOfBits(read) {
    const given = options();
    return names().map(formatOf).map((format) => {
      const same = read.source === "code" && format === read.format;
      return { format, ...(same ? read : F.convert(read.number, format, given)) };
    });
  }

  const setCode = (code, format = formatOf(state.f)) => set({ c: F.codeText(code, format), f: format.name });

  function bitGroups(code, format, draw) {
    const text = F.bitText(code, format), groups = [];
    for (let i = 0; i < text.length; i++) {
      const letter = format.layout[i];
      if (!groups.length || groups[groups.length - 1].letter !== letter) groups.push({ letter, bits: [] });
      groups[groups.length - 1].bits.push(draw(i, text[i] === "1", format.bits - 1 - i, letter));
    }
    return groups;
  }

  const FIELD = { s: "sign", e: "exponent", t: "significand" };

  function bigBits(read) {
    const { code, format } = read;
    bitAt = Math.min(bitAt, format.bits - 1);
    const flip = (place) => setCode(code ^ (1n << BigInt(place)));
    const groups = bitGroups(code, format, (i, one, place, letter) => button(`bit${i}`, one ? "1" : "0", () => { bitAt = i; flip(place); }, {
      class: one ? "bit one" : "bit", "aria-pressed": String(one), tabindex: i === bitAt ? 0 : -1,
      "aria-label": T("bit_label", { field: T(FIELD[letter]), place, bit: one ? 1 : 0 }), onfocus: () => { bitAt = i; },
      onkeydown: (event) => {
        const move = { ArrowLeft: -1, ArrowRight: 1, Home: -i, End: format.bits - 1 - i }[event.key];
        if (move !== undefined) {
          bitAt = Math.max(0, Math.min(i + move, format.bits - 1));
          update();
          document.getElementById(`bit${bitAt}`).focus();
        } else if (event.key === "ArrowUp" || event.key === "ArrowDown") step(event.key === "ArrowUp");
        else return;
        event.preventDefault();
      },
    }));
    const t = BigInt(format.trailingBits), magnitude = code & format.magnitudeMask;
    const moveField = (letter, by) => {
      const mask = letter === "e" ? ((1n << BigInt(format.exponentBits)) - 1n) << t : (1n << t) - 1n;
      const unit = letter === "e" ? 1n << t : 1n;
      setCode((code & ~mask) | (((code & mask) + BigInt(by) * unit) & mask));
    };
    return h("div", { class: format.bits > 19 ? "bits many" : "bits" }, groups.map(({ letter, bits }) => {
      const meaning = letter === "s" ? (code & format.signMask ? "−" : "+") : letter === "e" ? `${magnitude >> t}` : `${magnitude & ((1n << t) - 1n)}`;
      const name = T(FIELD[letter]);
      return h("div", { class: `group ${letter}` }, h("div", { class: "name" }, `${name}${T("colon")}`, h("b", { class: "mono" }, meaning),
        letter !== "s" && [button(`${letter}-less`, "−", () => moveField(letter, -1), { "aria-label": T("field_less", { field: name }) }),
          button(`${letter}-more`, "+", () => moveField(letter, 1), { "aria-label": T("field_more", { field: name }) })]),
      h("div", { class: "row" }, bits));
    }));
  }

  function step(up) {
    const { code, format } = readBits();
    setCode((up ? F.nextUp : F.nextDown)(code, format).code);
  }

  /** The value as (-1)^s x 1.xxx x 2^e. */
  function productText(x, format) {
    if (x.kind !== "finite") return plain(x);
    if (!x.significand) return x.sign ? "−0" : "0";
    const t = format.trailingBits, e = Math.max(F.leading(x), format.emin), bits = x.significand.toString(2).padStart(t + 1, "0");
    const significand = F.finite(0, x.significand, -t);
    return `${x.sign ? "−" : "+"} ${bits[0]}.${bits.slice(1) || "0"}₂ × 2^${e}  =  ${x.sign ? "−" : "+"} ${F.exactDecimal(significand)} × 2^${e}`;
  }

  function viewBits() {
    delete problems.number;
    delete problems.code;
    const read = readBits(), { format, code } = read, x = F.decode(code, format);
    const special = [["0", 0n], ["1", F.convert(F.finite(0, 1n, 0), format).code], [T("largest"), format.maxCode],
      [T("smallest_normal"), format.hasZero ? 1n << BigInt(format.trailingBits) : 0n],
      format.hasSubnormals && [T("smallest_subnormal"), 1n], format.infinityCode !== null && ["∞", format.infinityCode],
      format.canonicalNan !== null && [T("nan"), format.canonicalNan]].filter(Boolean);
    const ulp = ulpExponent(x, format);
    const neighbour = (move) => {
      const { code: there } = move(code, format), y = F.decode(there, format);
      return `${plain(y)}  (${F.codeText(there, format)})`;
    };
    const facts = [
      [T("value"), plain(x)], [T("exact_value"), x.kind === "finite" ? F.exactDecimal(x) : plain(x)],
      [T("as_product"), productText(x, format)], [T("hexadecimal"), F.hexText(x)],
      [T("kind"), T(`kind_${F.classify(code, format)}`), true],
      ulp !== null && [T("spacing"), spacingText(ulp)],
      x.kind === "finite" && [T("below"), neighbour(F.nextDown)], x.kind === "finite" && [T("above"), neighbour(F.nextUp)],
      read.source === "typed" && [T("error"), errorText(x, read.number, format) || "–"],
      [T("flags"), flagText(read.events), true],
    ].filter(Boolean);
    const dazRead = read.source === "code" && state.daz && F.classify(code, format) === "subnormal";
    const from = read.source === "typed" ? T("source_typed", { value: state.x.trim() })
      : T(dazRead ? "source_daz" : "source_code", { code: F.codeText(code, format), format: label(format) });
    return [
      h("p", { class: "soft" }, T("bits_intro")),
      h("div", { class: "controls" },
        field("number", T("number"), state.c && !problems.code ? plain(x).replace("−", "-").replace("∞", "inf") : state.x,
          (text) => set({ x: text, c: "" }), { size: 26, wide: true }),
        field("code", T("code"), state.c || F.codeText(code, format), (text) => set({ c: text || "0x" }), { size: 20 }),
        button("previous", "▼", () => step(false), { title: T("previous"), "aria-label": T("previous") }),
        button("next", "▲", () => step(true), { title: T("next"), "aria-label": T("next") }),
        format.signed && button("negate", "±", () => setCode(code ^ format.signMask), { title: T("negate"), "aria-label": T("negate") })),
      h("div", { class: "controls" }, special.map(([name, there], i) => button(`special${i}`, name, () => setCode(there)))),
      bigBits(read),
      h("dl", { class: "facts", id: "facts" }, facts.map(([name, text, words]) => [h("dt", {}, name), h("dd", { class: words ? "words" : null }, text)])),
      h("h2", {}, T("all_formats")), h("p", { class: "soft", id: "source" }, from), sideBySide(read),
    ];
  }

  function sideBySide(read) {
    const old = change && change.old;
    return h("div", { class: "scroll" }, h("table", { id: "formats" },
      h("thead", {}, h("tr", {}, ["format", "value", "code", "error", "flags", "changed", "bits"].map((key) => h("th", { scope: "col" }, T(key))))),
      h("tbody", {}, rowsOfBits(read).map(({ format, code, events }) => {
        const x = F.decode(code, format), before = old && old.get(format.name);
        const oldBits = before ? BigInt(before.split(" ")[0]) ^ code : 0n;
        const bits = bitGroups(code, format, (i, one, place, letter) => h("button", { type: "button", tabindex: -1,
          class: (oldBits >> BigInt(place)) & 1n ? `${letter} flip` : letter, "aria-hidden": "true",
          onclick: () => setCode(code ^ (1n << BigInt(place)), format) }, one ? "1" : "0"));
        return h("tr", { class: before ? "changed" : format === read.format ? "chosen" : null, id: `row-${format.name}` },
          h("td", {}, h("button", { id: `open-${format.name}`, class: "name", type: "button", style: `--hue:${format.colour}`,
            title: T("open_format", { format: label(format) }),
            onclick: () => set(read.source === "code" ? { f: format.name, c: F.codeText(code, format) } : { f: format.name }) }, label(format))),
          h("td", { class: "mono" }, plain(x)), h("td", { class: "mono" }, F.codeText(code, format)),
          h("td", { class: "mono" }, errorText(x, read.number, format)), h("td", {}, flagText(events)),
          h("td", {}, before ? T("was", { value: before.split(" ")[1] }) : ""),
          h("td", { class: "mini" }, bits.map((group) => [h("span", {}, group.bits), " "])));
      }))));
  }

  // -- operations -------------------------------------------------------------------------------------------------

  const OPERAND_KEYS = ["a", "b", "e"], OPERAND_NAMES = ["a", "b", "c"];
  const countOf = (operation) => (operation === "fma" ? 3 : 2);

  function readOperation() {
    const format = formatOf(state.f), count = countOf(state.op);
    const operands = OPERAND_KEYS.slice(0, count).map((key, i) =>
      tried(`operand-${OPERAND_NAMES[i]}`, () => operand(state[key], format)) ?? { code: 0n });
    return { format, operands, told: F.explain(state.op, operands.map((x) => x.code), format, options()) };
  }

  function pattern(row, first, places) {
    const cells = [h("b", { class: "n" }, row.sign ? "−" : "+")], most = row.first + 1 + places;
    for (let i = row.first; i < first; i++) cells.push(h("b", { class: "n" }, " "));
    [...row.bits].slice(0, most).forEach((bit, i) => {
      const place = i - row.first; // places behind the point
      if (row.kept !== undefined && place === row.kept + 1) cells.push(h("b", { class: "bar" }, "|"));
      const lost = row.kept !== undefined && place > row.kept;
      cells.push(h("b", { class: `${lost ? "x " : ""}${bit === "1" ? "i" : "o"}` }, bit));
      if (place === 0) cells.push(h("b", { class: "p" }, "."));
    });
    if (row.bits.length > most || row.sticky) cells.push(h("b", { class: "p" }, "…"));
    return cells;
  }

  function rowNote(step, row, told, index) {
    const exactly = () => equals(F.finite(row.sign, BigInt(`0b${row.bits}`), row.exponent - (row.bits.length - row.first - 1)));
    if (step.name === "unpack") {
      const code = F.codeText(row.code, told.format);
      return `${exactly()}   ${code}${row.zeroed ? `   ${T("read_as_zero")}` : ""}`;
    }
    return step.name === "align" || (step.name === "add" && index < step.rows.length - 1) || row.sticky ? "" : exactly();
  }

  const rowName = (name) => (OPERAND_NAMES.includes(name) ? name : T(`row_${name}`));

  function sentence(step, told) {
    const values = { ...step.values }, outcome = F.decode(told.code, told.format);
    if (step.name === "round") {
      const r = told.rounding;
      values.mode = T(state.r);
      values.decision = r.inexact ? T("decided", { position: T(`position_${r.position}`), direction: T(r.up ? "up" : "down") }) : T("decided_exact");
    }
    for (const key of ["small", "large"]) if (values[key]) values[key] = rowName(values[key]);
    if (step.name === "result") {
      Object.assign(values, { value: plain(outcome), code: F.codeText(told.code, told.format), flags: flagText(told.events) });
    }
    return T(`say_${step.key}`, values);
  }

  function viewOperations() {
    for (const name of OPERAND_NAMES) delete problems[`operand-${name}`];
    const format = formatOf(state.f);
    if (!format.signed) return [h("p", { class: "soft" }, T("operations_intro")), h("p", { class: "problem" }, T("no_arithmetic", { format: label(format) }))];
    const { operands, told } = readOperation();
    const rows = told.steps.flatMap((step) => step.rows), first = Math.max(0, ...rows.map((row) => row.first));
    const controls = [choose("operation", T("operation"), "op", Object.keys(F.OPERATIONS).map((name) => [name, T(name)])),
      operands.map((x, i) => input(`operand-${OPERAND_NAMES[i]}`, T("operand", { name: OPERAND_NAMES[i] }), OPERAND_KEYS[i], { size: 16 })),
      button("swap", "a ⇄ b", () => set({ a: state.b, b: state.a }), { title: T("swap") })];
    const result = F.decode(told.code, format);
    const notes = operands.map((x, i) => x.rounded && T("operand_rounded", { given: state[OPERAND_KEYS[i]].trim(), value: plain(F.decode(x.code, format)) })).filter(Boolean);
    if (told.events & F.ABSORBED) notes.push(T("absorbed_note"));
    return [
      h("p", { class: "soft" }, T("operations_intro")), h("div", { class: "controls" }, controls),
      h("p", { class: "outcome", id: "outcome" }, `${T("result")}${T("colon")}${plain(result)}   ${F.codeText(told.code, format)}${T("between")}${T("flags")}${T("colon")}${flagText(told.events)}`),
      notes.map((note) => h("p", { class: "soft" }, note)),
      h("p", { class: "legend" }, h("span", {}, h("b", { class: "i" }, "1"), T("legend_kept")), h("span", {}, h("b", { class: "x" }, "1"), T("legend_lost"))),
      h("ol", { class: "steps", id: "steps" }, told.steps.map((step, i) => h("li", {},
        h("div", {}, h("span", { class: "step-name" }, `${i + 1}. ${T(`step_${step.name}`)}`), sentence(step, told)),
        step.rows.length > 0 && h("div", { class: "scroll" }, h("table", { class: "work" },
          h("tbody", {}, step.rows.map((row, k) => h("tr", {}, h("td", {}, rowName(row.name)), h("td", { class: "pattern" }, pattern(row, first, told.format.trailingBits + MORE_PLACES)),
            h("td", {}, `× 2^${row.exponent}`), h("td", {}, rowNote(step, row, told, k)))))))))),
    ];
  }

  // -- sums -------------------------------------------------------------------------------------------------------

  /** Random numbers that are the same everywhere (mulberry32). */
  function randomNumbers(seed) {
    return () => {
      seed = (seed + 0x6d2b79f5) | 0;
      let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
  }
  function normalNumbers(seed) {
    const random = randomNumbers(seed);
    return () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  }

  const known = { key: "", sums: null };

  /** A sum draws a new number for each rounding; the slider is its seed. */
  function withDraws(given) {
    const random = randomNumbers(Math.round(100 * Number(state.d)));
    return { ...given, draw: () => BigInt(Math.floor(random() * 4294967296)) };
  }

  function readSum() {
    const format = formatOf(state.f), accumulator = formatOf(state.acc), given = options();
    const key = JSON.stringify([state, format.name, custom.layout, custom.specials, custom.bias]);
    if (known.key === key) return known.sums;
    for (const id of ["term", "count", "list"]) delete problems[id];
    let exact = [];
    if (state.tk === "list") exact = tried("list", () => parseList(state.tl, MOST_TERMS)) ?? [];
    else {
      const n = Number(state.n), x = ["constant", "alternating"].includes(state.tk) ? tried("term", () => F.parse(state.tx)) ?? F.zero(0) : null;
      if (!Number.isInteger(n) || n < 1 || n > MOST_TERMS) problems.count = T("bad_count", { most: MOST_TERMS });
      const count = problems.count ? 1 : n, random = randomNumbers(1);
      const half = x && { ...F.negated(x), exponent: x.exponent - 1 };
      for (let i = 0; i < count; i++) {
        exact.push(state.tk === "harmonic" ? F.fromRatio(1n, BigInt(i + 1)) : state.tk === "random" ? F.fromNumber(random())
          : state.tk === "alternating" && i % 2 ? half : x);
      }
    }
    const unique = new Map(), terms = exact.map((x) => {
      if (!unique.has(x)) unique.set(x, F.decode(F.convert(x, format, given).code, format, given.daz));
      return unique.get(x);
    });
    const sums = new Map(Object.keys(F.ORDERS).map((order) => [order, F.sum(terms, order, accumulator, withDraws(given))]));
    const finite = terms.every((x) => x.kind === "finite");
    Object.assign(known, { key, sums: { terms, sums, accumulator, exact: finite ? F.exactTotal(terms, given) : null } });
    return known.sums;
  }

  function chart(steps, accumulator, exact) {
    const width = 760, height = 260, left = 70, bottom = 30, most = 500;
    const values = steps.map((step) => F.toNumber(F.decode(step.code, accumulator))), n = values.length;
    if (!n || !values.every(Number.isFinite)) return null;
    const end = F.toNumber(exact), low = Math.min(0, end, ...values), high = Math.max(0, end, ...values) || 1;
    const x = (i) => left + ((width - left - 10) * i) / Math.max(n, 1), y = (v) => 10 + ((height - bottom - 10) * (high - v)) / (high - low || 1);
    const stride = Math.max(1, Math.floor(n / most)), points = [];
    for (let i = 0; i < n; i += stride) points.push(`${x(i + 1).toFixed(1)},${y(values[i]).toFixed(1)}`);
    points.push(`${x(n).toFixed(1)},${y(values[n - 1]).toFixed(1)}`);
    return h("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": T("running_sum") },
      h("line", { x1: left, y1: y(low), x2: width - 10, y2: y(low), stroke: "var(--line)" }),
      h("line", { x1: left, y1: 10, x2: left, y2: y(low), stroke: "var(--line)" }),
      h("line", { x1: left, y1: y(end), x2: width - 10, y2: y(end), stroke: "var(--good)", "stroke-dasharray": "6 4", "stroke-width": 2 }),
      h("polyline", { points: points.join(" "), fill: "none", stroke: "var(--lost)", "stroke-width": 3 }),
      h("text", { x: left - 6, y: y(high) + 10, "text-anchor": "end" }, numeric(high)), h("text", { x: left - 6, y: y(low), "text-anchor": "end" }, numeric(low)),
      h("text", { x: left + 6, y: y(end) + (y(end) < 30 ? 16 : -6) }, `${T("exact_line")}${T("colon")}${numeric(end)}`),
      h("text", { x: width - 10, y: height - 8, "text-anchor": "end" }, `${T("term_axis")}${T("colon")}${n}`),
      h("text", { x: left + 4, y: height - 8 }, T("running_sum")));
  }

  function relativeError(x, exact) {
    if (!exact || x.kind !== "finite") return "–";
    const d = F.toNumber(F.difference(x, exact)), e = F.toNumber(exact);
    return d === 0 ? T("exact") : e === 0 ? "–" : numeric(Math.abs(d / e));
  }

  function viewSums() {
    if (!formatOf(state.f).signed || !formatOf(state.acc).signed) {
      const bad = [state.f, state.acc].map(formatOf).find((x) => !x.signed);
      return [h("p", { class: "soft" }, T("sums_intro")), sumControls(), h("p", { class: "problem" }, T("no_arithmetic", { format: label(bad) }))];
    }
    const { terms, sums, accumulator, exact } = readSum(), { code, steps } = sums.get(state.or), x = F.decode(code, accumulator);
    let still = steps.length;
    while (still > 0 && steps[still - 1].code === code) still--;
    const count = steps.filter((step) => step.events & F.ABSORBED).length, runs = ["sequential", "reverse", "kahan"].includes(state.or);
    // The end of a sum may stay unchanged by chance: it has stopped if the last twentieth of its terms is unchanged.
    const stopped = steps.length - still - 1 >= Math.max(1, steps.length / 20) && state.r !== "stochastic";
    const story = !runs ? T("no_running") : stopped ? T("stops", { k: still + 1, value: plain(x), count }) : T("grows", { count, n: steps.length });
    return [
      h("p", { class: "soft" }, T("sums_intro")), sumControls(),
      h("p", { class: "outcome", id: "outcome" }, `${T("result")}${T("colon")}${plain(x)}   ${F.codeText(code, accumulator)}`),
      h("p", { id: "story" }, story),
      exact && h("p", { class: "soft" }, `${T("exact_sum")}${T("colon")}`, h("span", { class: "mono" }, short(exact, 17)), `${T("between")}${T("relative_error")}${T("colon")}${relativeError(x, exact)}`),
      runs && exact && h("div", { class: "scroll" }, chart(steps, accumulator, exact)),
      h("h2", {}, T("every_order")),
      h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["order", "result", "relative_error"].map((key) => h("th", {}, T(key))))),
        h("tbody", {}, [...sums].map(([order, sum]) => h("tr", { class: change && change.old.has(order) ? "changed" : order === state.or ? "chosen" : null },
          h("td", {}, button(`order-${order}`, T(`order_${order}`), () => set({ or: order }), { class: "name", style: `--hue:${accumulator.colour}` })),
          h("td", { class: "mono" }, plain(F.decode(sum.code, accumulator))), h("td", { class: "mono" }, relativeError(F.decode(sum.code, accumulator), exact))))))),
      h("p", { class: "soft" }, `n = ${terms.length}`),
    ];
  }

  function sumControls() {
    const kinds = CHOICES.tk.map((kind) => [kind, T(`terms_${kind}`)]), listed = state.tk === "list";
    return h("div", { class: "controls" }, choose("terms", T("terms"), "tk", kinds),
      ["constant", "alternating"].includes(state.tk) && input("term", T("number"), "tx"),
      listed ? input("list", T("list"), "tl", { tag: "textarea", wide: true, size: null, rows: 2 }) : input("count", T("number_of_terms"), "n", { size: 7, inputmode: "numeric" }),
      choose("accumulator", T("accumulator"), "acc", formatChoices((x) => x.signed)),
      choose("order", T("order"), "or", CHOICES.or.map((order) => [order, T(`order_${order}`)])));
  }

  // -- Hopper -----------------------------------------------------------------------------------------------------

  function unitKey(unit) { return `${unit.name}/${unit.input}/${unit.output}`; }

  function unitExample(unit, kind) {
    const n = unit.terms, random = randomNumbers(7), tiny = `2^-${Math.ceil((unit.fractionBits + 1) / 2)}`;
    const list = (make) => Array.from({ length: n }, (_, k) => make(k)).join(" ");
    if (kind === "small") return [list((k) => (k ? tiny : "1")), list((k) => (k ? tiny : "1"))];
    if (kind === "cancel") return [list((k) => (k === 0 ? "192" : k === 1 ? "-192" : tiny)), list((k) => (k < 2 ? "128" : tiny))];
    const some = () => list(() => (0.1 + 0.9 * random()).toFixed(3));
    return [some(), some()];
  }

  function readUnit() {
    for (const id of ["unit-a", "unit-b", "unit-c"]) delete problems[id];
    const data = DATA.instructions.find((unit) => unitKey(unit) === state.u), format = formatOf(data.input), output = formatOf(data.output);
    const unit = { ...data, grid: F.makeFormat(data.grid.name, data.grid.exponentBits, data.grid.trailingBits, data.grid.specials, data.grid.bias) };
    const texts = state.hp === "own" ? [state.ha, state.hb] : unitExample(unit, state.hp);
    const sides = texts.map((text, i) => {
      const codes = tried(i ? "unit-b" : "unit-a", () => parseList(text, unit.terms).map((x) => F.convert(x, format).code)) ?? [];
      return [...codes, ...Array(unit.terms - codes.length).fill(0n)];
    });
    const c = tried("unit-c", () => operand(state.hc, output).code) ?? 0n;
    return { unit, format, output, texts, a: sides[0], b: sides[1], c, block: F.unitBlock(unit, ...sides, c, format, output) };
  }

  function viewHopper() {
    const { unit, format, output, texts, a, b, c, block } = readUnit();
    const other = (key) => (text) => set({ ha: texts[0], hb: texts[1], hp: "own", [key]: text });
    const controls = h("div", { class: "controls" },
      choose("unit", T("instruction"), "u", DATA.instructions.map((x) => [unitKey(x), `${x.name}  ${x.input} → ${x.output}`])),
      choose("example", T("example"), "hp", CHOICES.hp.map((kind) => [kind, kind === "own" ? T("own_list") : T(`example_${kind}`)]),
        (kind) => set(kind === "own" ? { hp: kind, ha: texts[0], hb: texts[1] } : { hp: kind })),
      field("unit-c", T("initial"), state.hc, (text) => set({ hc: text }), { size: 14 }),
      field("unit-a", "a", texts[0], other("ha"), { tag: "textarea", wide: true, rows: 2 }), field("unit-b", "b", texts[1], other("hb"), { tag: "textarea", wide: true, rows: 2 }));
    const d = F.decode(block.code, output), parts = [h("p", { class: "soft" }, T("hopper_intro")), controls];
    const numbers = a.map((x) => F.decode(x, format)).map((x, k) => [x, F.decode(b[k], format)]);
    let chained = c;
    for (const [x, y] of numbers) chained = F.fma(x, y, F.decode(chained, output), output).code;
    const finite = block.kept !== undefined;
    const rows = [[T("unit_result"), d]];
    if (finite) rows.push([T("compare_exact"), F.decode(F.roundPack(F.exactTotal(block.terms.map((x) => x.number)), output, F.DEFAULTS).code, output)]);
    rows.push([T("compare_fma", { format: output.name }), F.decode(chained, output)]);
    parts.push(h("div", { class: "scroll" }, h("table", { id: "compare" }, h("tbody", {}, rows.map(([name, x], i) => h("tr", { class: i ? null : "chosen" }, h("td", {}, name), h("td", { class: "mono", id: i ? null : "outcome" }, plain(x)),
      h("td", { class: "mono" }, F.hexText(x))))))));
    if (!finite) return parts;
    parts.push(h("p", { class: "soft" }, T("unit_facts", { terms: unit.terms, bits: unit.fractionBits, mode: T(unit.rounding), grid: unit.grid.name, exponent: block.exponent, quantum: block.quantum })),
      h("p", { id: "story" }, T("cut_off", { count: block.lost.filter(Boolean).length, absorbed: block.absorbed.filter(Boolean).length })));
    const aligned = (x) => {
      const behind = block.exponent - x.exponent, whole = Math.max(2, F.bitLength(x.significand) - behind);
      const width = behind + whole;
      const bits = x.significand.toString(2).padStart(width, "0"), kept = whole + unit.fractionBits; // later zeros say nothing
      return { sign: x.sign, bits: bits.slice(0, kept) + bits.slice(kept).replace(/0+$/, ""), first: whole - 1, kept: unit.fractionBits };
    };
    const patterns = block.terms.map((x) => (x.number.significand ? aligned(x.number) : null));
    const total = aligned(F.finite(block.total < 0n ? 1 : 0, block.total < 0n ? -block.total : block.total, block.quantum));
    const first = Math.max(total.first, ...patterns.map((x) => (x ? x.first : 0)));
    parts.push(h("div", { class: "scroll" }, h("table", { class: "work", id: "terms-table" },
      h("thead", {}, h("tr", {}, h("th", {}, "k"), h("th", {}, T("products")), h("th", {}, T("exact_product")), h("th", {}, `${T("aligned")} × 2^${block.exponent}`), h("th", {}))),
      h("tbody", {}, block.terms.map((x, k) => h("tr", {}, h("td", {}, k < a.length ? `${k}` : "c"),
        h("td", {}, k < a.length ? `${short(numbers[k][0], 5)} × ${short(numbers[k][1], 5)}` : ""), h("td", {}, short(x.number, 6)),
        h("td", { class: "pattern" }, patterns[k] ? pattern(patterns[k], first, unit.fractionBits + MORE_PLACES) : "0"), h("td", {}, block.absorbed[k] ? T("absorbed") : ""))),
      h("tr", {}, h("td", {}, "Σ"), h("td", {}, T("total")), h("td", {}, short(F.finite(total.sign, block.total < 0n ? -block.total : block.total, block.quantum), 12)), h("td", { class: "pattern" }, block.total ? pattern(total, first, unit.fractionBits + MORE_PLACES) : "0"), h("td", {}))))));
    return parts;
  }

  // -- codes ------------------------------------------------------------------------------------------------------

  /** Four digits; small numbers with an exponent, as a cell is narrow. */
  function cellText(x) {
    const value = Math.abs(F.toNumber(x));
    if (x.kind !== "finite" || !value || value >= 0.001) return short(x, 4);
    return `${x.sign ? "−" : ""}${value.toExponential(3).replace(/\.?0*e/, "e")}`;
  }

  function viewCodes() {
    delete problems["grid-code"];
    const format = formatOf(state.g).bits <= 8 ? formatOf(state.g) : formatOf(DEFAULTS.g);
    const chosen = tried("grid-code", () => parseCode(state.gc, format)) ?? 0n, count = 1 << format.bits;
    const columns = Math.min(16, count), rows = count / columns, digits = format.bits <= 4 ? 0 : 1;
    const pick = (code) => set({ gc: F.codeText(BigInt(code), format) });
    const cell = (code) => {
      const x = F.decode(BigInt(code), format), kind = F.classify(BigInt(code), format), on = BigInt(code) === chosen;
      const look = ["infinity", "nan", "signaling_nan"].includes(kind) ? "special" : kind === "normal" ? (x.sign ? "negative" : "") : kind;
      return h("td", { role: "gridcell" }, button(`cell${code}`, cellText(x), () => pick(code), { class: look, "aria-selected": String(on), tabindex: on ? 0 : -1,
        title: `${F.codeText(BigInt(code), format)}  ${T(`kind_${kind}`)}`, onkeydown: (event) => {
          const move = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key], there = code + (move || 0);
          if (move === undefined || there < 0 || there >= count) return;
          event.preventDefault();
          pick(there);
          document.getElementById(`cell${there}`).focus();
        } }));
    };
    const body = Array.from({ length: rows }, (_, r) => h("tr", {}, h("th", { scope: "row" }, digits ? `${r.toString(16).toUpperCase()}_` : ""),
      Array.from({ length: columns }, (__, c) => cell(r * columns + c))));
    const x = F.decode(chosen, format), kind = F.classify(chosen, format);
    const legend = [["var(--trailing)", "kind_normal"], ["var(--subnormal)", "kind_subnormal"], ["var(--zero)", "kind_zero"], ["var(--special)", "legend_special"]];
    return [
      h("p", { class: "soft" }, T("codes_intro")),
      h("div", { class: "controls" }, choose("grid-format", T("format"), "g", formatChoices((f) => f.bits <= 8), (value) => set({ g: value, gc: F.codeText(F.convert(F.finite(0, 1n, 0), formatOf(value)).code, formatOf(value)) })),
        input("grid-code", T("code"), "gc", { size: 8 }),
        button("open", T("open_in_bits"), () => set({ s: "bits", f: format.name, c: F.codeText(chosen, format) }), { class: "main" })),
      h("div", { class: "bits" }, bitGroups(chosen, format, (i, one, place) => button(`gbit${i}`, one ? "1" : "0", () => pick(chosen ^ (1n << BigInt(place))), { class: one ? "bit one" : "bit", "aria-pressed": String(one) }))
        .map(({ letter, bits }) => h("div", { class: `group ${letter}` }, h("div", { class: "name" }, T(FIELD[letter])), h("div", { class: "row" }, bits)))),
      h("p", { class: "outcome", id: "outcome" }, `${F.codeText(chosen, format)} ${relation(x, plain(x))} ${plain(x)}   ${T(`kind_${kind}`)}`),
      h("p", { class: "soft mono" }, productText(x, format)),
      h("p", { class: "legend" }, legend.map(([colour, key]) => h("span", {}, h("span", { class: "swatch", style: `background:${colour}` }), T(key)))),
      h("div", { class: "scroll" }, h("table", { class: "grid", id: "grid", role: "grid", "aria-label": T("grid", { format: label(format) }) },
        h("thead", {}, h("tr", {}, h("th", {}), Array.from({ length: columns }, (_, c) => h("th", { scope: "col" }, `${digits ? "_" : ""}${c.toString(16).toUpperCase()}`)))), h("tbody", {}, body))),
    ];
  }

  // -- histogram --------------------------------------------------------------------------------------------------

  const presets = new Map();
  function preset(kind) {
    if (!presets.has(kind)) {
      const normal = normalNumbers(3), n = 300;
      const make = { gradients: () => normal() * 2 ** (-21 + Math.max(-2.6, Math.min(2.6, normal())) * 3.4),
        weights: () => 0.05 * normal(), outliers: (k) => normal() * (k % 50 === 7 ? 300 : 1) }[kind];
      presets.set(kind, Array.from({ length: n }, (_, k) => Number(make(k).toPrecision(3))).join(" "));
    }
    return presets.get(kind);
  }

  const histogram = { text: null, numbers: [] };
  function readHistogram() {
    const text = state.hd === "own" ? state.hl : preset(state.hd);
    if (histogram.text !== text) {
      delete problems.data;
      histogram.text = text;
      histogram.numbers = (tried("data", () => parseList(text, MOST_NUMBERS)) ?? []).filter((x) => x.kind === "finite" && x.significand);
      if (!histogram.numbers.length && !problems.data) problems.data = T("nothing_to_count");
      histogram.lost = new Map();
    }
    return histogram;
  }

  /** Count what the conversion of the numbers, times 2^k, does: [overflow, flushed, subnormal, normal]. */
  function losses(format, k) {
    const key = `${format.name} ${format.layout} ${format.specials} ${format.bias} ${k}`;
    if (!histogram.lost.has(key)) {
      const counts = [0, 0, 0, 0];
      for (const x of histogram.numbers) {
        const { events } = F.convert({ ...x, exponent: x.exponent + k }, format);
        counts[events & F.OVERFLOW ? 0 : events & F.FLUSHED ? 1 : events & F.SUBNORMAL ? 2 : 3]++;
      }
      histogram.lost.set(key, counts);
    }
    return histogram.lost.get(key);
  }

  function bestScales(format) {
    let best = Infinity, found = [];
    for (let k = -40; k <= 40; k++) {
      const [over, flushed] = losses(format, k);
      if (over + flushed < best) [best, found] = [over + flushed, []];
      if (over + flushed === best) found.push(k);
    }
    return { low: found[0], high: found.find((k, i) => found[i + 1] !== k + 1) };
  }

  function viewHistogram() {
    const { numbers } = readHistogram(), k = Number(state.k) || 0, chosen = formatOf(state.hf);
    const controls = h("div", { class: "controls" },
      choose("data-kind", T("data"), "hd", CHOICES.hd.map((kind) => [kind, kind === "own" ? T("own_list") : T(`data_${kind}`)]),
        (kind) => set(kind === "own" ? { hd: kind, hl: histogram.text } : { hd: kind })),
      field("data", T("list"), histogram.text, (text) => set({ hd: "own", hl: text }), { tag: "textarea", wide: true, rows: 3 }),
      choose("data-format", T("format"), "hf", formatChoices((f) => f.signed)), slider("scale", `${T("loss_scale")} = ${k}`, "k", -40, 40));
    const parts = [h("p", { class: "soft" }, T("histogram_intro")), controls];
    if (!numbers.length) return parts;
    const exponents = numbers.map((x) => F.leading(x) + k), low = Math.min(...exponents), high = Math.max(...exponents);
    const [over, flushed] = losses(chosen, k), n = numbers.length, share = (count) => percent(count / n);
    parts.push(h("p", { class: "outcome", id: "outcome" }, T("lost_line", { format: label(chosen), share: share(over + flushed), overflow: share(over), flushed: share(flushed) })),
      h("p", { class: "soft" }, `${T("counted", { count: n, low, high })} ${T("best_k", { format: label(chosen), ...bestScales(chosen) })}`));
    const shown = ["FP32", "BF16", "FP16", "E5M2", "E4M3", "E3M2", "E2M3", "E2M1"].map(formatOf).concat(custom.signed ? [custom] : []);
    const from = Math.max(-75, Math.min(low, chosen.emin - chosen.trailingBits - 1) - 2), to = Math.min(75, Math.max(high, chosen.emax) + 3);
    const width = 820, left = 70, top = 160, line = 22, unit = (width - left - 10) / (to - from), x = (e) => left + unit * (Math.max(from, Math.min(e, to)) - from);
    const counts = new Map();
    for (const e of exponents) counts.set(e, (counts.get(e) || 0) + 1);
    const most = Math.max(...counts.values());
    const outside = (e) => (e > chosen.emax ? "var(--lost)" : e < chosen.emin - chosen.trailingBits - 1 ? "var(--lost)" : e < chosen.emin ? "var(--changed-ink)" : "var(--one)");
    parts.push(h("div", { class: "scroll" }, h("svg", { viewBox: `0 0 ${width} ${top + 24 + line * shown.length}`, width, height: top + 24 + line * shown.length, role: "img", "aria-label": T("ranges") },
      [...counts].filter(([e]) => e >= from && e < to).map(([e, count]) => h("rect", { x: x(e) + 1, y: top - (140 * count) / most, width: Math.max(1, unit - 2), height: (140 * count) / most, fill: outside(e) })),
      h("line", { x1: left, x2: width - 10, y1: top, y2: top, stroke: "var(--line)" }),
      Array.from({ length: 9 }, (_, i) => Math.round(from + ((to - from) * i) / 8)).map((e) => h("text", { x: x(e), y: top + 16, "text-anchor": e === to ? "end" : "middle" }, `2^${e}`)),
      shown.map((format, i) => {
        const y = top + 26 + line * i, here = x(format.emin), there = x(format.emax + 1), tail = x(format.emin - format.trailingBits);
        return h("g", {}, h("text", { x: left - 6, y: y + 12, "text-anchor": "end" }, label(format)),
          h("rect", { x: tail, y, width: Math.max(0, here - tail), height: 14, fill: format.colour, opacity: 0.35 }),
          h("rect", { x: here, y, width: Math.max(0, there - here), height: 14, fill: format.colour, stroke: format === chosen ? "var(--ink)" : "none", "stroke-width": 2 }));
      }))));
    const heads = ["lost_overflow", "lost_flushed", "lost_subnormal", "lost_normal"];
    parts.push(h("div", { class: "scroll" }, h("table", { id: "losses" }, h("thead", {}, h("tr", {}, h("th", {}, T("format")), heads.map((key) => h("th", { class: "num" }, T(key))))),
      h("tbody", {}, names().map(formatOf).filter((f) => f.signed).map((format) => h("tr", { class: format === chosen ? "chosen" : null },
        h("td", {}, button(`loss-${format.name}`, label(format), () => set({ hf: format.name }), { class: "name", style: `--hue:${format.colour}` })),
        losses(format, k).map((count) => h("td", { class: "num" }, share(count)))))))));
    return parts;
  }

  // -- blocks -----------------------------------------------------------------------------------------------------

  function readBlocks() {
    delete problems.block;
    let numbers = null;
    if (state.bl) {
      numbers = tried("block", () => {
        const list = parseList(state.bl, MOST_ELEMENTS);
        if (!list.length || list.some((x) => x.kind !== "finite")) throw new F.InputError("list", list.length ? "finite_only" : "nothing_to_count");
        return list;
      });
    }
    const at = Math.max(0, Math.min(Math.round(Number(state.bp)) || 0, 63)), own = numbers !== null;
    if (!own) {
      const normal = normalNumbers(11);
      numbers = Array.from({ length: 64 }, () => F.parse(normal().toFixed(3)));
      numbers[at] = { ...numbers[at], exponent: numbers[at].exponent + (Math.round(Number(state.bo)) || 0) };
    }
    const codes = numbers.map((x) => F.convert(x, FP32, { ...F.DEFAULTS, overflow: "saturate_finite" }).code);
    return { codes, own, at: own ? -1 : at };
  }

  function viewBlocks() {
    const { codes, own, at } = readBlocks(), x = codes.map((code) => F.decode(code, FP32)), values = x.map(F.toNumber);
    const shown = state.bl || values.map((value) => Number(value.toPrecision(6))).join(" ");
    const parts = [h("p", { class: "soft" }, T("blocks_intro")), h("div", { class: "controls" },
      slider("outlier", T("outlier", { value: `2^${state.bo}` }), "bo", 0, 24), slider("outlier-at", `${T("outlier_at")}${T("colon")}${state.bp}`, "bp", 0, 63),
      field("block", T("list"), shown, (text) => set({ bl: text }), { tag: "textarea", wide: true, rows: 2 }),
      (own || state.bl) && button("normal", T("normal_list"), () => set({ bl: "" })))];
    const summary = [], strips = [];
    for (const data of DATA.schemes) {
      const scheme = { ...data, format: formatOf(data.format), scaleFormat: formatOf(data.scaleFormat) }, { blocks, tensorScale } = F.quantizeBlocks(codes, scheme, FP32);
      const back = blocks.flatMap((block) => block.values), errors = back.map((y, i) => (values[i] ? Math.abs((F.toNumber(y) - values[i]) / values[i]) : 0));
      const zeros = back.filter((y, i) => F.isZero(y) && values[i]).length, mean = errors.reduce((p, q) => p + q, 0) / errors.length;
      const name = T(data.rule === "nvfp4" ? "scheme_nvfp4" : data.block ? "scheme_blocks" : "scheme_tensor", { format: data.format, block: data.block, scale: data.scaleFormat });
      summary.push(h("tr", {}, h("td", {}, name), h("td", { class: "num" }, `${zeros} / ${values.length}`), h("td", { class: "num" }, percent(mean)), h("td", { class: "num" }, percent(Math.max(...errors)))));
      const scales = blocks.map((block) => plain(F.decode(block.scale, scheme.scaleFormat)));
      strips.push(h("div", { class: "card" }, h("b", {}, name), h("div", { class: "soft" }, `${T("scale")}${T("colon")}`, h("span", { class: "mono" }, scales.join("   ")),
        tensorScale && `${T("between")}${T("tensor_scale", { value: short(tensorScale, 6) })}`),
      h("div", { class: "strip" }, back.map((y, i) => {
        const level = Math.min(1, errors[i] * (errors[i] < 1 ? 2 : 1)), first = data.block && i % data.block === 0 && i % 32 !== 0;
        return h("span", { class: `${i === at ? "outlier" : ""}${first ? " edge" : ""}`, title: T("element_text", { i, x: numeric(values[i]), value: short(y, 5) }),
          style: `background:color-mix(in srgb, var(--lost) ${Math.round(100 * level)}%, var(--card));${level > 0.6 ? "color:var(--page)" : ""}` }, F.isZero(y) ? "0" : "");
      }))));
    }
    parts.push(h("div", { class: "scroll" }, h("table", { id: "schemes" }, h("thead", {}, h("tr", {}, h("th", {}, T("scheme")), ["zeros", "mean_error", "worst"].map((key) => h("th", { class: "num" }, T(key))))), h("tbody", {}, summary))),
      strips, h("p", { class: "legend" }, [0, 0.25, 0.5, 1].map((level) => h("span", {}, h("span", { class: "swatch", style: `border:1px solid var(--line);background:color-mix(in srgb, var(--lost) ${100 * level}%, var(--card))` }), `${level === 1 ? "≥ " : ""}${percent(level / 2)}`)),
      h("span", {}, `0${T("colon")}${T("flushed")}`)));
    return parts;
  }

  // -- tasks ------------------------------------------------------------------------------------------------------

  const codeIs = (name, code) => () => state.s === "bits" && state.f === name && readBits().code === code;
  const events = (name) => F.convert(F.parse(state.x), formatOf(name), options()).events;

  /** Tasks: the text, the state at the start, and whether they are solved. */
  const TASKS = [
    { key: "half", start: { f: "FP16", c: "0x0000" }, solved: codeIs("FP16", 0x3e00n) },
    { key: "largest", start: { f: "E4M3", c: "0x38" }, solved: codeIs("E4M3", 0x7en) },
    { key: "subnormal", start: { f: "BF16", c: "0x3F80" }, solved: codeIs("BF16", 1n) },
    { key: "only_bf16", start: { f: "FP16", x: "1" }, solved: () => !state.c && Boolean(events("FP16") & F.OVERFLOW) && !(events("BF16") & F.OVERFLOW) },
    { key: "saturate", start: { f: "E4M3", x: "1000" }, solved: () => state.x.trim() === "1000" && codeIs("E4M3", 0x7en)() },
    { key: "absorbed", start: { s: "operations", f: "FP16", a: "1", b: "0.5" }, solved: () => {
      const { operands, told } = readOperation();
      return state.s === "operations" && state.op === "add" && state.f === "FP16" && operands[0].code === 0x3c00n && Boolean(told.events & F.ABSORBED) && told.code === 0x3c00n;
    } },
    { key: "tie", start: { s: "operations", f: "E4M3", a: "1", b: "1" }, solved: () => state.s === "operations" && state.op === "add" && state.f === "E4M3" && readOperation().told.rounding?.position === "half" },
    { key: "sum", start: { s: "sums", f: "FP16", acc: "FP16", tx: "1", n: "4096" }, solved: () => state.s === "sums" && state.tk === "constant" && state.tx === "1" && state.n === "4096" && state.acc === "FP16"
      && F.toNumber(F.decode(readSum().sums.get(state.or).code, formatOf("FP16"))) === 4096 },
    { key: "nan", start: { s: "codes", g: "E4M3", gc: "0x00" }, solved: () => state.s === "codes" && state.g === "E4M3" && F.isNan(F.decode(parseCode(state.gc, formatOf("E4M3")), formatOf("E4M3"))) },
    { key: "scale", start: { s: "histogram", hd: "gradients", k: "0", hf: "FP16" }, solved: () => {
      if (state.s !== "histogram" || state.hd !== "gradients") return false;
      readHistogram();
      const [over, flushed] = losses(formatOf("FP16"), Number(state.k));
      return over + flushed === 0;
    } },
    { key: "hopper", start: { s: "hopper", hp: "random", hc: "0" }, solved: () => state.s === "hopper" && state.hp === "random" && Boolean(readUnit().block.absorbed?.slice(0, -1).some(Boolean)) },
  ];
  const solved = new Set();

  function checkTask() {
    const number = Number(state.task);
    if (!TASKS[number - 1]) return false;
    try {
      if (TASKS[number - 1].solved()) solved.add(number);
      else solved.delete(number);
    } catch (error) {
      if (!(error instanceof F.InputError)) throw error;
    }
    return solved.has(number);
  }

  const startOf = (number) => ({ ...DEFAULTS, l: state.l, th: state.th, ...TASKS[number - 1].start, task: String(number) });

  function viewTasks() {
    return [h("p", { class: "soft" }, T("tasks_intro")), h("ol", { class: "tasks" }, TASKS.map((task, i) => h("li", {},
      h("span", {}, `${i + 1}. ${T(`task_${task.key}`)}`), h("span", { class: solved.has(i + 1) ? "good" : "soft" }, solved.has(i + 1) ? `✓ ${T("solved")}` : ""),
      button(`task${i + 1}`, T("start"), () => set(startOf(i + 1)), { class: "main" }))))];
  }

  // -- the page ---------------------------------------------------------------------------------------------------

  const VIEWS = { bits: viewBits, operations: viewOperations, sums: viewSums, hopper: viewHopper, codes: viewCodes, histogram: viewHistogram, blocks: viewBlocks, tasks: viewTasks };

  /** What the options may change in this section, by a name: the code, the value and the flags as one text. */
  function results() {
    const text = (code, format, happened) => `${F.codeText(code, format)} ${plain(F.decode(code, format))} ${happened & F.FLAGS}`;
    if (state.s === "bits") return new Map(rowsOfBits(readBits()).map(({ format, code, events: happened }) => [format.name, text(code, format, happened)]));
    if (state.s === "operations" && formatOf(state.f).signed) {
      const { format, told } = readOperation();
      return new Map([[T("result"), text(told.code, format, told.events)]]);
    }
    if (state.s === "sums" && formatOf(state.f).signed && formatOf(state.acc).signed) {
      const { sums, accumulator } = readSum();
      return new Map([...sums].map(([order, { code }]) => [order, text(code, accumulator, 0)]));
    }
    return new Map();
  }

  function changeText() {
    const { label: option, from, to, old, after, total } = change;
    if (!old.size) return T("nothing_changed", { option, from, to });
    const value = (text) => { const [code, number, flags] = text.split(" "); return { code, number, flags: Number(flags) }; };
    const shown = [...old].slice(0, 4).map(([name, before]) => {
      const was = value(before), is = value(after.get(name)), title = STRINGS[`order_${name}`] ? T(`order_${name}`) : name === CUSTOM ? T("custom") : name;
      return was.code === is.code ? `${title} ${T("flags")} ${flagText(was.flags)} → ${flagText(is.flags)}` : `${title} ${was.number} → ${is.number}`;
    });
    return T("what_changed", { option, from, to, count: old.size, total, list: shown.join(T("semicolon")) + (old.size > 4 ? `${T("semicolon")}…` : "") });
  }

  function viewOptions() {
    if (!WITH_OPTIONS.includes(state.s)) return [];
    const pick = (key, known) => choose(`option-${key}`, T({ r: "rounding", o: "overflow", tin: "tininess" }[key]), key, known.map((name) => [name, T(name)]),
      (value) => setOption(key, value, T({ r: "rounding", o: "overflow", tin: "tininess" }[key]), T));
    const check = (key) => h("label", { class: "check", title: T(`${key}_help`) }, h("input", { id: `option-${key}`, type: "checkbox", checked: Boolean(state[key]),
      onchange: (event) => setOption(key, event.target.checked ? "1" : "", T(key), (value) => T(value ? "on" : "off")) }), T(key));
    const changed = ["r", "o", "tin", "ftz", "daz"].some((key) => state[key] !== DEFAULTS[key]);
    const changeFormat = (value) => {
      const from = formatOf(state.f), to = formatOf(value);
      if (state.s !== "bits" || !state.c) return set({ f: value });
      const code = tried("code", () => parseCode(state.c, from));
      return set({ f: value, c: code === null ? "" : F.codeText(F.convert(F.decode(code, from), to, options()).code, to) });
    };
    const parts = [choose("format", state.s === "sums" ? T("terms_in") : T("format"), "f", formatChoices((x) => state.s === "bits" || x.signed), changeFormat),
      pick("r", DATA.roundings), pick("o", DATA.overflows), check("ftz"), check("daz"), pick("tin", DATA.tininess)];
    if (state.r === "stochastic") parts.push(slider("draw", T(state.s === "sums" ? "draw_seed" : "draw_help", { value: Number(state.d).toFixed(2) }), "d", 0, 0.99, 0.01));
    if (changed) parts.push(button("reset", T("reset"), () => set({ r: DEFAULTS.r, o: DEFAULTS.o, tin: DEFAULTS.tin, ftz: "", daz: "" })));
    const usesCustom = state.f === CUSTOM || (state.s === "sums" && state.acc === CUSTOM);
    if (usesCustom || ["cw", "ct", "ck", "cb"].some((id) => problems[id])) {
      parts.push(input("cw", T("exponent_bits"), "cw", { size: 4, also: { c: "" } }), input("ct", T("trailing_bits"), "ct", { size: 4, also: { c: "" } }),
        choose("ck", T("specials"), "ck", Object.keys(F.SPECIALS).map((kind) => [kind, T(`special_${kind}`)]), (value) => set({ ck: value, c: "" })),
        input("cb", T("bias"), "cb", { size: 6, placeholder: String(custom.bias), also: { c: "" } }));
    }
    return parts;
  }

  function render() {
    document.documentElement.lang = state.l;
    document.title = T("title");
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.look = state.th === "auto" ? (dark ? "dark" : "light") : state.th;
    readCustom();
    const content = VIEWS[state.s]();
    document.getElementById("skip").textContent = T("skip");
    put("header", h("h1", {}, T("title")), button("link", T("permalink"), copyLink),
      h("label", { class: "check" }, T("theme"), h("select", { id: "theme", value: state.th, onchange: (event) => set({ th: event.target.value }) },
        THEMES.map((name) => h("option", { value: name, selected: name === state.th }, T(name))))),
      button("language", T("language"), () => set({ l: state.l === "en" ? "zh" : "en" }), { title: T("language_label"), lang: state.l === "en" ? "zh" : "en" }),
      button("help", "?", showKeys, { title: T("keys"), "aria-label": T("keys") }));
    put("tabs", SECTIONS.map((name, i) => button(`tab-${name}`, T(name), () => set({ s: name }), { role: "tab", "aria-selected": String(name === state.s), title: `${i + 1}`, "aria-controls": "content" })));
    put("options", viewOptions());
    const task = document.getElementById("task"), number = Number(state.task);
    const done = checkTask();
    task.hidden = !TASKS[number - 1] || state.s === "tasks";
    if (!task.hidden) {
      put("task", h("b", {}, T("task", { number })), T(`task_${TASKS[number - 1].key}`), h("span", { class: done ? "good" : "soft", id: "task-state" }, done ? `✓ ${T("solved")}` : T("open")),
        number < TASKS.length && button("task-next", T("next_task"), () => set(startOf(number + 1))), button("task-all", T("all_tasks"), () => set({ s: "tasks" })));
    }
    const changes = document.getElementById("changes"), text = notice || (change ? changeText() : "");
    changes.hidden = !text;
    changes.textContent = text;
    put("content", content);
    put("footer", T("footer", { version: DATA.version }));
    if (state.s !== shown) document.getElementById(`tab-${state.s}`).scrollIntoView({ block: "nearest", inline: "nearest" });
    shown = state.s;
  }

  function showKeys() {
    const keys = document.getElementById("keys");
    put("keys", h("p", {}, T("keys_text")), button("keys-close", T("close"), () => keys.close()));
    keys.showModal();
  }

  function hash() {
    const texts = Object.entries(state).filter(([key, value]) => value !== DEFAULTS[key]);
    return texts.length ? `#${new URLSearchParams(texts)}` : "";
  }

  function copyLink() {
    const address = location.href.split("#")[0] + (hash() || "#s=bits");
    const tell = (key) => { notice = T(key); render(); };
    if (!navigator.clipboard) return tell("copy_failed");
    return navigator.clipboard.writeText(address).then(() => tell("copied"), () => tell("copy_failed"));
  }

  let written = null;
  function update() {
    render();
    written = hash();
    try {
      history.replaceState(null, "", written || location.href.split("#")[0]);
    } catch { /* a frame of a notebook has no address */ }
  }

  /** Take the texts of a permalink. A choice that does not exist is named, and its default is taken. */
  function take(texts) {
    Object.assign(state, DEFAULTS);
    change = null;
    notice = "";
    valid.clear();
    for (const [key, value] of texts) {
      const known = typeof CHOICES[key] === "function" ? CHOICES[key]() : CHOICES[key];
      if (key in DEFAULTS && (!known || known.includes(value))) state[key] = value;
      else notice = T("bad_link", { name: key, value });
    }
    render();
  }

  addEventListener("hashchange", () => { if (location.hash !== written) take(new URLSearchParams(location.hash.slice(1))); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || document.getElementById("keys").open) return;
    if (event.target.matches?.("input:not([type=checkbox]):not([type=range]), textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const section = SECTIONS[Number(event.key) - 1];
    if (section) set({ s: section });
    else if (event.key === "l") set({ l: state.l === "en" ? "zh" : "en" });
    else if (event.key === "c") set({ th: THEMES[(THEMES.indexOf(state.th) + 1) % THEMES.length] });
    else if (event.key === "?") showKeys();
    else if (event.key === "n") {
      const there = document.querySelector("#content input");
      if (!there) return;
      there.focus();
      there.select?.();
      event.preventDefault();
    }
  });

  take(location.hash ? new URLSearchParams(location.hash.slice(1)) : Object.entries(START || {}));
})();
