// Browsers do not start workers for pages that are opened as files (file://). The search of the website needs one.
// For such pages, this file replaces Worker by a hidden frame that runs the script of the worker.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      // The same event reaches `onmessage` and the listeners.
      const receive = data => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      this.waiting = []
      window.addEventListener("message", event => {
        if (event.source === frame.contentWindow) receive(event.data)
      })
      const begin = () => {
        const inside = frame.contentDocument
        inside.open()
        inside.write(
          "<!doctype html><script>" +
            "postMessage = data => parent.postMessage(data, '*');" +
            "importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise(done => {" +
            "  const script = document.createElement('script'); script.src = url;" +
            "  script.onload = script.onerror = done; document.body.append(script) })), Promise.resolve())" +
            "<\/script><body><script src='" + url + "'><\/script>"
        )
        inside.close()
        frame.contentWindow.addEventListener("load", () => {
          this.frame = frame
          for (const data of this.waiting.splice(0)) this.postMessage(data)
        })
      }
      const add = () => { document.body.append(frame); begin() }
      if (document.body) add()
      else addEventListener("DOMContentLoaded", add)
    }

    postMessage(data) {
      if (this.frame) this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
      else this.waiting.push(data)
    }

    terminate() {
      if (this.frame) this.frame.remove()
    }
  }
  window.Worker = window.IFrameWorker
}
