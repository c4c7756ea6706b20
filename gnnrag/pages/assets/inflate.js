// Decompression for browsers that have none of their own (RFC 1951 and 1952).
function gunzip(bytes) {
  const flags = bytes[3];
  let at = 10;
  if (flags & 4) at += 2 + bytes[at] + 256 * bytes[at + 1];
  if (flags & 8) {
    while (bytes[at++]);
  }
  if (flags & 16) {
    while (bytes[at++]);
  }
  if (flags & 2) at += 2;
  const end = bytes.length;
  const size = bytes[end - 4] + 256 * (bytes[end - 3] + 256 * (bytes[end - 2] + 256 * bytes[end - 1]));
  return inflate(bytes.subarray(at, end - 8), size);
}

function inflate(bytes, size) {
  const out = new Uint8Array(size);
  let at = 0,
    kept = 0,
    count = 0,
    place = 0;

  function bits(number) {
    while (count < number) {
      kept |= bytes[at++] << count;
      count += 8;
    }
    const value = kept & ((1 << number) - 1);
    kept >>>= number;
    count -= number;
    return value;
  }

  function tree(lengths) {
    // How many codes there are of each length, and the symbols in the order of their codes.
    const counts = new Uint16Array(16),
      starts = new Uint16Array(16),
      symbols = new Uint16Array(lengths.length);
    for (const length of lengths) counts[length]++;
    counts[0] = 0;
    for (let i = 1; i < 16; i++) starts[i] = starts[i - 1] + counts[i - 1];
    lengths.forEach((length, symbol) => {
      if (length) symbols[starts[length]++] = symbol;
    });
    return { counts, symbols };
  }

  function symbol({ counts, symbols }) {
    let code = 0,
      first = 0,
      index = 0;
    for (let length = 1; length < 16; length++) {
      code |= bits(1);
      if (code - counts[length] < first) return symbols[index + code - first];
      index += counts[length];
      first = (first + counts[length]) << 1;
      code <<= 1;
    }
    throw new Error("the data of this page are damaged");
  }

  const BASES = [
    3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258,
  ];
  const MORE = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
  const ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

  function lengthsFromStream() {
    const literals = bits(5) + 257,
      distances = bits(5) + 1,
      used = bits(4) + 4,
      small = new Array(19).fill(0);
    for (let i = 0; i < used; i++) small[ORDER[i]] = bits(3);
    const codes = tree(small),
      lengths = [];
    while (lengths.length < literals + distances) {
      const found = symbol(codes);
      if (found < 16) lengths.push(found);
      else if (found === 16) {
        const last = lengths[lengths.length - 1];
        for (let i = bits(2) + 3; i; i--) lengths.push(last);
      } else for (let i = found === 17 ? bits(3) + 3 : bits(7) + 11; i; i--) lengths.push(0);
    }
    return [tree(lengths.slice(0, literals)), tree(lengths.slice(literals))];
  }

  function fixedTrees() {
    const lengths = Array.from({ length: 288 }, (_, i) => (i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8));
    return [tree(lengths), tree(new Array(30).fill(5))];
  }

  for (let last = 0; !last;) {
    last = bits(1);
    const kind = bits(2);
    if (kind === 0) {
      kept = count = 0;
      const length = bytes[at] + 256 * bytes[at + 1];
      out.set(bytes.subarray(at + 4, at + 4 + length), place);
      at += 4 + length;
      place += length;
      continue;
    }
    const [literals, distances] = kind === 1 ? fixedTrees() : lengthsFromStream();
    for (let found = symbol(literals); found !== 256; found = symbol(literals)) {
      if (found < 256) {
        out[place++] = found;
        continue;
      }
      const length = BASES[found - 257] + bits(MORE[found - 257]);
      const far = symbol(distances),
        extra = far < 4 ? 0 : (far >> 1) - 1;
      const distance = (far < 4 ? far : (2 + (far & 1)) * 2 ** extra) + 1 + bits(extra);
      for (let i = 0; i < length; i++, place++) out[place] = out[place - distance];
    }
  }
  return out;
}
