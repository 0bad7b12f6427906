// Browsers start no workers from the file system; a hidden frame does the same, so that search needs no server.
if (location.protocol === "file:")
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = Object.assign(document.createElement("iframe"), { hidden: true });
      document.body.append(frame);
      this.frame = frame;
      this.inside = frame.contentWindow;
      this.addEventListener("message", (event) => this.onmessage?.(event));
      this.inside.postMessage = (data) =>
        this.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) }));
      const script = frame.contentDocument.createElement("script");
      this.loaded = new Promise((resolve) => (script.onload = resolve));
      script.src = url;
      frame.contentDocument.body.append(script);
    }
    terminate() {
      this.frame.remove();
    }
    postMessage(data) {
      const copy = structuredClone(data); // as a worker has it: what either side changes is its own
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data: copy })));
    }
  };
