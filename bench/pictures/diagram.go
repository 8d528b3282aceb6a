package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
)

// diagram is a sequence of messages between lanes, from top to bottom.
type diagram struct {
	title string
	lanes []lane
	rows  []row
}

// lane is a participant, with the middle of its line.
type lane struct {
	name string
	x    int
}

// row is a message, or a note if from and to are the same lane.
type row struct {
	from, to    int
	text, class string
}

func (d *diagram) message(from, to int, text, class string) {
	d.rows = append(d.rows, row{from, to, text, class})
}

func (d *diagram) note(lane int, text string) {
	d.rows = append(d.rows, row{lane, lane, text, "note"})
}

const (
	width     = 960
	headLine  = 62
	rowHeight = 38
)

// The picture has its own background and follows the color scheme of the viewer.
const style = `
.ground{fill:#ffffff;stroke:#d0d7de}
text{font-family:-apple-system,BlinkMacSystemFont,"Segoe UI","Noto Sans",Helvetica,Arial,sans-serif;font-size:16px;fill:#1f2328;text-anchor:middle}
.head{font-size:17px;font-weight:600}
.lane{stroke:#d0d7de;stroke-width:2}.box{fill:#eaeef2;stroke:#d0d7de}
path{stroke:#59636e;fill:none;stroke-width:1.5}
path.good{stroke:#1a7f37}path.bad{stroke:#cf222e}path.slow{stroke:#9a6700}
text.good{fill:#1a7f37}text.bad{fill:#cf222e}text.slow{fill:#9a6700}
@media (prefers-color-scheme:dark){
.ground{fill:#0d1117;stroke:#3d444d}text{fill:#f0f6fc}
.lane{stroke:#3d444d}.box{fill:#212830;stroke:#3d444d}
path{stroke:#9198a1}
path.good{stroke:#56d364}path.bad{stroke:#ff7b72}path.slow{stroke:#e3b341}
text.good{fill:#56d364}text.bad{fill:#ff7b72}text.slow{fill:#e3b341}
}`

// svg returns the picture.
func (d *diagram) svg() []byte {
	var b bytes.Buffer
	height := headLine + rowHeight*len(d.rows) + 34
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title desc">`+"\n", width, height)
	fmt.Fprintf(&b, "<title id=\"title\">%s</title>\n<desc id=\"desc\">%s</desc>\n<style>%s</style>\n", escape(d.title), escape(d.describe()), style)
	fmt.Fprintf(&b, `<rect class="ground" x=".5" y=".5" width="%d" height="%d" rx="6"/>`+"\n", width-1, height-1)
	for _, l := range d.lanes {
		fmt.Fprintf(&b, `<text class="head" x="%d" y="34">%s</text>`+"\n", l.x, escape(l.name))
		fmt.Fprintf(&b, `<line class="lane" x1="%d" y1="48" x2="%d" y2="%d"/>`+"\n", l.x, l.x, height-16)
	}
	for i, r := range d.rows {
		y := headLine + rowHeight*(i+1)
		from, to := d.lanes[r.from].x, d.lanes[r.to].x
		if r.from == r.to {
			w := 8*len([]rune(r.text)) + 24
			fmt.Fprintf(&b, `<rect class="box" x="%d" y="%d" width="%d" height="28" rx="5"/>`+"\n", from-w/2, y-24, w)
			fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`+"\n", from, y-5, escape(r.text))
			continue
		}
		step := 1
		if to < from {
			step = -1
		}
		end := to - 3*step
		fmt.Fprintf(&b, `<path class="%s" d="M%d %dH%dm%d -5l%d 5l%d 5"/>`+"\n", r.class, from+3*step, y, end, -8*step, 8*step, -8*step)
		fmt.Fprintf(&b, `<text class="%s" x="%d" y="%d">%s</text>`+"\n", r.class, d.middle(r), y-7, escape(r.text))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// middle returns where the text of a message goes: left of its rightmost lane, where
// it is on no lane's line.
func (d *diagram) middle(r row) int {
	right := max(r.from, r.to)
	return (d.lanes[right-1].x + d.lanes[right].x) / 2
}

// describe returns the picture in words.
func (d *diagram) describe() string {
	var said []string
	for _, r := range d.rows {
		if r.from == r.to {
			said = append(said, d.lanes[r.from].name+": "+r.text)
		} else {
			said = append(said, d.lanes[r.from].name+" to "+d.lanes[r.to].name+": "+r.text)
		}
	}
	return strings.Join(said, "; ") + "."
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}
