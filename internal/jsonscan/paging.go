package jsonscan

import (
	"encoding/json"
	"strings"
)

// Paging is what a list response says of another page in the ways of other APIs.
// The fields name the first key of each kind.
type Paging struct {
	Items       int // on the page
	Seen, Pages int // up to and with the page; negative: not known

	Next   string // a link to another page, or a flag that there is one
	Ended  string // an empty link, or a flag that there is none
	Count  string // a total that is not reached
	Whole  string // a total that is reached
	Scheme string // another way of paging, which does not say whether a page follows
	Full   string // a page size that the page has

	numbered, opaque, short bool // a page number or offset; a cursor; a page size that the page does not have
}

// pagingKeys are the kinds of keys, whose names are without separators and in lower
// case.
var pagingKeys = func() map[string]string {
	keys := map[string]string{}
	for kind, names := range map[string]string{
		"next": "next nextpage nextpagetoken nextpageurl nextpagelink nextpagenumber nextpagecursor nextpageid nexttoken nextlink nexturl nexturi " +
			"nexthref nextcursor nextmarker nextoffset nextstart nextkey nextid nextrecordsurl nextcontinuationtoken nextbatch nextbookmark " +
			"continuation continuationtoken continuetoken scrollid lastevaluatedkey resumptiontoken resumetoken",
		"more":  "hasmore hasnext hasnextpage hasmorepages hasmoreitems hasmoreresults more moreavailable istruncated truncated incompleteresults",
		"last":  "last islast islastpage end isend eof endoflist done isdone complete iscomplete exhausted",
		"left":  "remaining remainingcount remainingitems",
		"total": "total totalcount totalitems totalresults totalrecords totalsize totalelements totalhits totalrows totalentries numfound",
		"count": "count resultcount itemcount", // of the list or of the page
		"pages": "totalpages pagecount pages numpages maxpage lastpage",
		"size":  "limit perpage pagesize pagelimit size itemsperpage maxresults",
		"scheme": "cursor cursors endcursor marker pagetoken page pagenumber currentpage pageindex offset skip startindex after startafter bookmark " +
			"pagination paging pager pageinfo",
		"inner": "meta metadata links link responsemetadata resultinfo",
	} {
		for name := range strings.FieldsSeq(names) {
			keys[name] = kind
		}
	}
	return keys
}()

// Read reads a list response.
func (p *Paging) Read(page []byte) {
	if p.read(page, "", 0, true); p.numbered && !p.opaque && (p.short || p.Items == 0) {
		p.Whole = p.Scheme // the last page of those with numbers
	}
}

// read reads an object at prefix. known is false where its name says nothing of
// paging: its numbers may then count something else.
func (p *Paging) read(object []byte, prefix string, depth int, known bool) {
	for key, value := range Members(object) {
		if depth == 0 && (strings.EqualFold(key, "data") || strings.EqualFold(key, "has_more") || strings.EqualFold(key, "next_cursor")) {
			continue
		}
		name := strings.Trim(key[strings.LastIndexByte(key, '.')+1:], "@$_") // @odata.nextLink, _links
		use := pagingKeys[strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))]
		path := prefix + name
		set := func(field *string, when bool) {
			if when && *field == "" {
				*field = path
			}
		}
		form, given := Kind(value), Given(value)
		n, err := number(strings.Trim(string(value), `"`))
		isNumber, isFlag := err == nil, form == "a boolean"
		switch {
		case use == "next":
			set(&p.Next, given)
			set(&p.Ended, !given)
		case use == "more":
			set(&p.Next, given)
			set(&p.Ended, !given && form != "null")
		case !known:
		case isFlag && (use == "last" || use == "pages"):
			set(&p.Next, !given)
			set(&p.Ended, given)
		case isNumber && use == "left":
			set(&p.Next, given)
			set(&p.Ended, !given)
		case isNumber && (use == "total" || use == "count"):
			set(&p.Count, p.Seen >= 0 && n > float64(p.Seen))
			set(&p.Whole, use == "total" && n <= float64(max(p.Seen, p.Items)))
		case isNumber && use == "pages":
			set(&p.Count, p.Pages >= 0 && n > float64(p.Pages))
			set(&p.Whole, n <= float64(max(p.Pages, 1)))
		case isNumber && use == "size":
			set(&p.Full, n > 0 && float64(p.Items) >= n)
			p.short = p.short || float64(p.Items) < n
		case use == "scheme":
			set(&p.Scheme, form != "null" && string(value) != `""`)
			p.numbered, p.opaque = p.numbered || isNumber, p.opaque || form == "text" && !isNumber && given
		case use == "inner" && form == "a list": // of links
			var links []struct{ Rel string }
			_ = json.Unmarshal(value, &links)
			for _, l := range links {
				set(&p.Next, strings.EqualFold(l.Rel, "next"))
			}
		}
		if form == "an object" && use != "next" && depth < 2 {
			if path += "."; !Plain(name) {
				path = prefix
			}
			p.read(value, path, depth+1, known && (use == "scheme" || use == "inner"))
		}
	}
}

// Plain reports whether key looks like the name of a field, and not like data.
func Plain(key string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
	return key != "" && len(key) <= 32 && strings.Trim(key, letters) == ""
}
