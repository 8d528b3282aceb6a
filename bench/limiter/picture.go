package limiter

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/brellium/brellium-go/brelliumtest"
)

// The picture shows five workers with 300 calls each, on a full bucket.
const (
	workers        = 5
	callsPerWorker = 300
)

// column is one client's run in the picture, in steps of some seconds.
type column struct {
	Title      string
	Tokens     []float64 // left in the bucket, each second
	Succeeded  []float64 // calls a second
	Limited    []float64 // 429s a second
	Lost       int
	RateLimits int
	Finished   time.Duration
}

// step is the width of the bars.
const step = 5 * time.Second

// portray runs five workers with one kind of client. It must run in a synctest
// bubble.
func portray(title string, client maker, seed uint64) column {
	w := world{latency: near, level: 100, processes: even(workers, workers*callsPerWorker, 8)}
	for i := range w.processes {
		w.processes[i].client = client
	}
	c := column{Title: title}
	w.while = func(e *brelliumtest.Emulator, done <-chan struct{}) {
		for {
			c.Tokens = append(c.Tokens, float64(e.Remaining()))
			select {
			case <-done:
				return
			case <-time.After(time.Second):
			}
		}
	}
	o := w.run(seed)
	c.Lost, c.RateLimits, c.Finished = o.lost(), o.rateLimits(nil), o.finished()
	bars := int(c.Finished/step) + 1
	c.Succeeded, c.Limited = make([]float64, bars), make([]float64, bars)
	for _, a := range o.responses {
		switch a.status {
		case http.StatusOK:
			c.Succeeded[a.at/step] += 1 / step.Seconds()
		case http.StatusTooManyRequests:
			c.Limited[a.at/step] += 1 / step.Seconds()
		}
	}
	return c
}

// The measures of the picture, in pixels.
const (
	pictureWidth = 960
	leftMargin   = 52
	rightMargin  = 20
	gap          = 26 // between columns
	headHeight   = 96
	panelHeight  = 96
	panelGap     = 42
	footHeight   = 46
	picturedTime = 300.0 // seconds
)

// panel is one row of the picture.
type panel struct {
	title  string
	class  string
	top    float64 // of its scale
	ticks  []float64
	values func(column) []float64
	width  float64 // of a value, in seconds
	guide  float64 // a dashed line, where above 0
}

var panels = []panel{
	{"tokens left in the organization's bucket", "tokens", 100, []float64{0, 50, 100}, func(c column) []float64 { return c.Tokens }, 1, 0},
	{"successful calls a second (dashed: refill)", "succeeded", 25, []float64{0, 5, 25}, func(c column) []float64 { return c.Succeeded }, step.Seconds(), 5},
	{"429s a second", "limited", 50, []float64{0, 25, 50}, func(c column) []float64 { return c.Limited }, step.Seconds(), 0},
}

// The picture has its own background, so that it is readable on any page, and
// follows the color scheme of the viewer.
const style = `
.ground{fill:#ffffff;stroke:#d0d7de}
text{font-family:-apple-system,BlinkMacSystemFont,"Segoe UI","Noto Sans",Helvetica,Arial,sans-serif;fill:#1f2328}
.head{font-size:17px;font-weight:600}.sum{font-size:15px}.small{font-size:13px;fill:#59636e}
.bad{fill:#cf222e;font-weight:600}.good{fill:#1a7f37;font-weight:600}
.axis{stroke:#d0d7de;fill:none}.limit{stroke:#59636e;stroke-dasharray:3 3;fill:none}
.tokens{fill:#0969da;fill-opacity:.22;stroke:#0969da}.succeeded{fill:#1a7f37;fill-opacity:.75}.limited{fill:#cf222e;fill-opacity:.75}
@media (prefers-color-scheme:dark){
.ground{fill:#0d1117;stroke:#3d444d}
text{fill:#f0f6fc}.small{fill:#9198a1}.bad{fill:#ff7b72}.good{fill:#56d364}
.axis{stroke:#3d444d}.limit{stroke:#9198a1}
.tokens{fill:#58a6ff;stroke:#58a6ff}.succeeded{fill:#3fb950}.limited{fill:#f85149}
}`

// draw writes the picture as SVG.
func draw(out io.Writer, columns []column) error {
	height := headHeight + len(panels)*(panelHeight+panelGap) + footHeight - panelGap
	width := (pictureWidth - leftMargin - rightMargin - gap*float64(len(columns)-1)) / float64(len(columns))
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title desc">`+"\n", pictureWidth, height)
	fmt.Fprintf(&b, "<title id=\"title\">Five workers share one rate limit</title>\n<desc id=\"desc\">%s</desc>\n", describe(columns))
	fmt.Fprintf(&b, "<style>%s</style>\n", style)
	fmt.Fprintf(&b, `<rect class="ground" x=".5" y=".5" width="%d" height="%d" rx="6"/>`+"\n", pictureWidth-1, height-1)
	for i, c := range columns {
		x := leftMargin + float64(i)*(width+gap)
		text(&b, x, 30, "head", c.Title)
		sum, class := fmt.Sprintf("%s of %s calls lost", thousands(c.Lost), thousands(workers*callsPerWorker)), "sum bad"
		if c.Lost == 0 {
			sum, class = "no call lost", "sum good"
		}
		text(&b, x, 50, class, sum)
		text(&b, x, 68, "small", fmt.Sprintf("%s 429s, done after %.0f s", thousands(c.RateLimits), c.Finished.Seconds()))
		for j, p := range panels {
			y := float64(headHeight + j*(panelHeight+panelGap))
			if i == 0 {
				text(&b, leftMargin, y-8, "small", p.title)
			}
			p.draw(&b, c, x, y, width, i == 0)
		}
		bottom := float64(height - footHeight)
		for k, anchor := range []string{"start", "middle", "middle", "end"} {
			s := float64(k) / 3 * picturedTime
			fmt.Fprintf(&b, `<text class="small" text-anchor="%s" x="%.1f" y="%.1f">%.0f s</text>`+"\n", anchor, x+s/picturedTime*width, bottom+16, s)
		}
	}
	text(&b, leftMargin, float64(height-10), "small", fmt.Sprintf(
		"%d processes with %d calls each start together on one limit of 100 requests and 5 a second, with round trips of 80 ms; simulated.", workers, callsPerWorker))
	b.WriteString("</svg>\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// describe returns the picture's description.
func describe(columns []column) string {
	var said []string
	for _, c := range columns {
		said = append(said, fmt.Sprintf("%s: %d of %d calls lost, %d 429s, done after %.0f s", c.Title, c.Lost, workers*callsPerWorker, c.RateLimits, c.Finished.Seconds()))
	}
	return strings.Join(said, "; ") + "."
}

func text(b *strings.Builder, x, y float64, class, s string) {
	fmt.Fprintf(b, `<text class="%s" x="%.1f" y="%.1f">%s</text>`+"\n", class, x, y, s)
}

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// draw draws the values as one stepped area over an axis.
func (p panel) draw(b *strings.Builder, c column, x, y, width float64, labels bool) {
	at := func(v float64) float64 { return y + panelHeight*(1-min(v, p.top)/p.top) }
	for _, tick := range p.ticks {
		if tick == 0 || p.guide == 0 || tick != p.guide {
			fmt.Fprintf(b, `<path class="axis" d="M%.1f %.1fh%.1f"/>`+"\n", x, at(tick), width)
		}
		if labels {
			fmt.Fprintf(b, `<text class="small" text-anchor="end" x="%.1f" y="%.1f">%.0f</text>`+"\n", x-6, at(tick)+4, tick)
		}
	}
	var path strings.Builder
	fmt.Fprintf(&path, "M%.1f %.1f", x, at(0))
	end, most := 0.0, 0.0
	for i, v := range p.values(c) {
		from, to := float64(i)*p.width, float64(i+1)*p.width
		if from >= picturedTime {
			break
		}
		end, most = min(to, picturedTime), max(most, v)
		fmt.Fprintf(&path, "V%.1fH%.1f", at(v), x+end/picturedTime*width)
	}
	if most == 0 {
		fmt.Fprintf(b, `<text class="small" text-anchor="middle" x="%.1f" y="%.1f">none</text>`+"\n", x+width/2, at(p.top/4)+4)
		return
	}
	fmt.Fprintf(&path, "V%.1fZ", at(0))
	fmt.Fprintf(b, `<path class="%s" d="%s"/>`+"\n", p.class, path.String())
	if p.guide > 0 {
		fmt.Fprintf(b, `<path class="limit" d="M%.1f %.1fh%.1f"/>`+"\n", x, at(p.guide), width)
	}
}
