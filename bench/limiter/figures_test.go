package limiter

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
)

var (
	figures = flag.Bool("figures", false, "measure everything and print the table")
	rows    = flag.String("rows", "", "measure these rows only, as in 7,9")
	seeds   = flag.Int("seeds", 10, "seeds to measure with -figures")
	from    = flag.Int("from", 0, "the first of them: the settings were chosen on 0 to 39, and reported on others")
)

// spread is the mean and the worst value of several seeds.
type spread struct {
	sum, worst float64
	n          int
}

func (s *spread) add(v float64, atLeast bool) {
	if s.n == 0 || (v < s.worst) == atLeast && v != s.worst {
		s.worst = v
	}
	s.sum += v
	s.n++
}

func (s *spread) mean() float64 { return s.sum / float64(s.n) }

// measured is a cell with its values.
type measured struct {
	cell
	spreads []spread // of its goals
	lost    float64
}

func (c cell) over(t *testing.T, seeds int) measured {
	m := measured{cell: c, spreads: make([]spread, len(c.goals))}
	for seed := range seeds {
		synctest.Test(t, func(*testing.T) {
			came := c.measure(uint64(*from + seed))
			for i, g := range c.goals {
				m.spreads[i].add(came[g.of], g.atLeast)
			}
			m.lost += came[lost]
		})
	}
	return m
}

// TestFigures checks the client against the goals. The short check allows the slack
// of a single seed; with -figures the mean of the seeds counts.
func TestFigures(t *testing.T) {
	var table []measured
	for _, c := range append(cells(), cellsMore()...) {
		if *rows != "" && !strings.Contains(","+*rows+",", ","+c.row+",") || c.long && !*figures {
			continue
		}
		t.Run(c.row+" "+c.situation, func(t *testing.T) {
			n := *seeds
			if !*figures {
				n = 1
			}
			m := c.over(t, n)
			table = append(table, m)
			if c.row != "1" && !slices.ContainsFunc(c.goals, func(g goal) bool { return g.of == lost || g.of == used || g.of == share || g.of == median }) {
				assert.Zero(t, m.lost, "lost calls")
			}
			for i, g := range c.goals {
				v := m.spreads[i].mean()
				if !*figures && g.atLeast {
					g.limit -= g.slack
				} else if !*figures {
					g.limit += g.slack
				}
				assert.True(t, g.met(v), "%s: %.4f, the goal is %.4f", g.of, v, g.limit)
			}
		})
	}
	if *figures {
		write(table)
	}
}

// TestRivals prints, with -figures, the figures of other ways to respect the limit.
// The short check makes sure that they lose calls and ours does not.
func TestRivals(t *testing.T) {
	n, worlds := 1, comparisons()
	if *figures {
		n = *seeds
	} else {
		worlds = worlds[1:2]
	}
	var table strings.Builder
	table.WriteString("| client |")
	for _, w := range worlds {
		table.WriteString(" " + w.name + " |")
	}
	table.WriteString("\n|---|" + strings.Repeat("---|", len(worlds)) + "\n")
	for _, r := range rivals() {
		table.WriteString("| " + r.name + " |")
		for _, w := range worlds {
			var lost, limited, ratio float64
			for seed := range n {
				synctest.Test(t, func(*testing.T) {
					a, b, c := r.compare(w.world, uint64(*from+seed))
					lost, limited, ratio = lost+a/float64(n), limited+b/float64(n), ratio+c/float64(n)
				})
			}
			fmt.Fprintf(&table, " %s, %s, %.3f |", thousands(int(lost+0.5)), thousands(int(limited+0.5)), ratio)
			if strings.Contains(r.name, "brellium") {
				assert.Zero(t, lost, r.name)
			} else if !*figures {
				assert.Greater(t, lost, 100.0, r.name)
			}
		}
		table.WriteString("\n")
	}
	if *figures {
		fmt.Print(table.String())
	}
}

// TestOthers prints, with -figures, where other clients can do better.
func TestOthers(t *testing.T) {
	if !*figures {
		return
	}
	for _, o := range others() {
		fmt.Printf("| %s |", o.name)
		for _, r := range rivals() {
			var s spread
			for seed := range *seeds {
				synctest.Test(t, func(*testing.T) { s.add(o.measure(r.client(2))(uint64(*from + seed))[o.of], false) })
			}
			fmt.Printf(" %.2f |", s.mean())
		}
		fmt.Println()
	}
}

// write prints the table in Markdown.
func write(table []measured) {
	fmt.Println("| # | situation | time over the bound | 429s | fairness | |\n|---|---|---|---|---|---|")
	for _, m := range table {
		var columns [4]string
		var others []string
		for i, g := range m.goals {
			at, format := 3, "%.0f"
			switch g.of {
			case ratio:
				at, format = 0, "%.4f"
			case limited:
				at, format = 1, "%.2f %%"
			case fairness:
				at, format = 2, "%.3f"
			case first:
				format = "%.1f %%"
			case late, joined:
				format = "%.1f s"
			case waited, median:
				format = "%.2f s"
			case used, useful, share, loses:
				format = "%.1f %%"
			case lost:
				format = "%.2f"
			}
			sign := "≤"
			if g.atLeast {
				sign = "≥"
			}
			s := m.spreads[i]
			text := fmt.Sprintf(format+" ("+format+") %s "+format, s.mean(), s.worst, sign, g.limit)
			if g.limit == 0 || math.IsInf(g.limit, 1) {
				text = fmt.Sprintf(format+" ("+format+")", s.mean(), s.worst)
			}
			if !g.met(s.mean()) {
				text = "**" + text + "**"
			}
			if at == 3 {
				others = append(others, g.of+": "+text)
				continue
			}
			columns[at] = text
		}
		columns[3] = strings.Join(others, "; ")
		fmt.Printf("| %s | %s | %s |\n", m.row, m.situation, strings.Join(columns[:], " | "))
	}
}
