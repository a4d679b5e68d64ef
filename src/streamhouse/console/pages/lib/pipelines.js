// What pipelines read.

// Names of topics and views that a pipeline reads; a shape says it, else the words after FROM and JOIN.
export function sourcesOf(pipeline) {
  const streams = pipeline.shape?.streams ?? [];
  const named = [...pipeline.text.matchAll(/\b(?:FROM|JOIN)\s+(?:STREAM\s*\(\s*)?`?([A-Za-z0-9_.-]+)`?/gi)].map((match) => match[1]);
  return [...new Set([...streams.map((each) => each.split(/[:\s]/)[0]), ...(streams.length ? [] : named)])].filter((each) => each && !/^(stream|select|lateral|unnest)$/i.test(each));
}
