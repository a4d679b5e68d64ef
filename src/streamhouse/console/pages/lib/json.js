// JSON whose integers stay what they are: those that a JavaScript number can't hold become a BigInt.
const LARGE = /\d{16}/;

const exact = (_, value, context) => (typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "") ? BigInt(context.source) : value);

// Without a number that long, there is nothing to look for; browsers without `context.source` round as ever.
export const parse = (text) => (LARGE.test(text) ? JSON.parse(text, exact) : JSON.parse(text));

const raw = (_, value) => (typeof value === "bigint" ? (JSON.rawJSON?.(String(value)) ?? String(value)) : value);
export const stringify = (value, indent) => JSON.stringify(value, raw, indent);
