import assert from "node:assert/strict";
import { test } from "node:test";

import { isWhole, pan, reveal, type Viewport, wholeOf, zoom } from "../src/viewport.ts";

const FILES = 1_000;

function isInside(view: Viewport): boolean {
  return view.x0 >= 0 && view.x1 <= 1 && view.y0 >= 0 && view.y1 <= FILES && view.x0 < view.x1;
}

test("the point under the pointer stays where it is", () => {
  const at = { x: 0.25, y: 600 };
  const before = wholeOf(FILES);
  const after = zoom(before, FILES, { x: 0.5, y: 0.5 }, at);
  const share = (view: Viewport) => [
    (at.x - view.x0) / (view.x1 - view.x0),
    (at.y - view.y0) / (view.y1 - view.y0),
  ];
  assert.deepEqual(share(after), share(before));
  assert.equal(after.y1 - after.y0, FILES / 2);
});

test("no zoom and no move leaves the picture", () => {
  let view = wholeOf(FILES);
  for (let i = 0; i < 200; i += 1) {
    const factor = [0.3, 2.5, 0.7, 1.9][i % 4] ?? 1;
    view = zoom(view, FILES, { x: factor, y: factor }, { x: (i % 11) / 10, y: (i * 97) % FILES });
    view = pan(view, FILES, { x: Math.sin(i), y: 400 * Math.cos(i) });
    assert.ok(isInside(view), JSON.stringify(view));
  }
});

test("zooming out ends with everything", () => {
  let view: Viewport = { x0: 0.4, x1: 0.41, y0: 10, y1: 20 };
  for (let i = 0; i < 20; i += 1) view = zoom(view, FILES, { x: 2, y: 2 }, { x: 0.405, y: 15 });
  assert.ok(isWhole(view, FILES));
});

test("zooming in ends with a few files", () => {
  let view = wholeOf(FILES);
  for (let i = 0; i < 40; i += 1) view = zoom(view, FILES, { x: 0.5, y: 0.5 }, { x: 0.5, y: 500 });
  assert.ok(Math.abs(view.y1 - view.y0 - 3) < 1e-9);
  assert.ok(view.x1 - view.x0 > 0);
});

test("a file out of sight is revealed with the least move", () => {
  const view: Viewport = { x0: 0, x1: 1, y0: 100, y1: 200 };
  assert.deepEqual(reveal(view, FILES, 150), view);
  assert.deepEqual(reveal(view, FILES, 200), { ...view, y0: 101, y1: 201 });
  assert.deepEqual(reveal(view, FILES, 40), { ...view, y0: 40, y1: 140 });
});
