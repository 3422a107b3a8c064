// Numbers that come packed in a message.

// The MessagePack parser hands out an ArrayBuffer or a view of a larger one.
/** @type {(data: Uint8Array | ArrayBuffer) => Uint8Array} */
export function bytesOf(data) {
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

// A view of the wire may not begin where numbers may.
/** @type {<N>(data: Uint8Array | ArrayBuffer, Numbers: NumbersClass<N>) => N} */
export const numbersOf = (data, Numbers) => new Numbers(bytesOf(data).slice().buffer);
