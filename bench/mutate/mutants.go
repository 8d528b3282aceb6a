package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"slices"
	"strconv"
	"strings"
)

// shifted gives each comparison and operator the one that it is changed to.
var shifted = map[token.Token]struct {
	to       token.Token
	operator string
}{
	token.LSS:  {token.LEQ, "comparison shifted"},
	token.LEQ:  {token.LSS, "comparison shifted"},
	token.GTR:  {token.GEQ, "comparison shifted"},
	token.GEQ:  {token.GTR, "comparison shifted"},
	token.EQL:  {token.NEQ, "comparison negated"},
	token.NEQ:  {token.EQL, "comparison negated"},
	token.LAND: {token.LOR, "and, or"},
	token.LOR:  {token.LAND, "and, or"},
	token.ADD:  {token.SUB, "arithmetic"},
	token.SUB:  {token.ADD, "arithmetic"},
	token.MUL:  {token.QUO, "arithmetic"},
	token.QUO:  {token.MUL, "arithmetic"},
}

// mutantsOf returns every mutant of a file.
func mutantsOf(name string, source []byte) (all []mutant) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, parser.SkipObjectResolution)
	if err != nil {
		log.Fatal(err)
	}
	offset := func(p token.Pos) int { return fset.Position(p).Offset }
	var f *function
	add := func(operator string, at token.Pos, edits ...edit) {
		m := mutant{file: name, line: fset.Position(at).Line, operator: operator, source: source, edits: edits}
		if f != nil && edits[0].from >= f.body && edits[0].from < f.to {
			m.function = f
		}
		all = append(all, m)
	}
	replace := func(operator string, n ast.Node, with string) {
		add(operator, n.Pos(), edit{offset(n.Pos()), offset(n.End()), with})
	}
	text := func(n ast.Node) string { return string(source[offset(n.Pos()):offset(n.End())]) }

	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.IfStmt:
			replace("condition negated", n.Cond, "!("+text(n.Cond)+")")
		case *ast.ForStmt:
			if n.Cond != nil {
				replace("condition negated", n.Cond, "!("+text(n.Cond)+")")
			}
		case *ast.BinaryExpr:
			if s, ok := shifted[n.Op]; ok {
				at := offset(n.OpPos)
				add(s.operator, n.OpPos, edit{at, at + len(n.Op.String()), s.to.String()})
			}
		case *ast.BasicLit:
			switch n.Kind {
			case token.INT:
				if v, err := strconv.ParseInt(n.Value, 0, 64); err == nil {
					replace("constant changed", n, strconv.FormatInt(v+1, 10))
				}
			case token.FLOAT:
				replace("constant changed", n, "(2 * "+n.Value+")")
			}
		case *ast.Ident:
			if n.Name == "true" || n.Name == "false" {
				replace("constant changed", n, strconv.FormatBool(n.Name != "true"))
			}
		case *ast.ReturnStmt:
			if len(n.Results) > 0 {
				last := n.Results[len(n.Results)-1]
				if id, ok := last.(*ast.Ident); ok && id.Name == "err" {
					replace("error swallowed", last, "nil")
				}
			}
		case *ast.IncDecStmt:
			replace("statement removed", n, "")
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				replace("statement removed", n, "")
			}
		case *ast.BranchStmt:
			if n.Tok == token.BREAK || n.Tok == token.CONTINUE {
				replace("statement removed", n, "")
			}
		case *ast.DeferStmt:
			if method(n.Call) != "Unlock" && method(n.Call) != "RUnlock" {
				replace("defer dropped", n, "")
			}
		case *ast.ExprStmt:
			switch call, ok := n.X.(*ast.CallExpr); {
			case !ok:
			case method(call) == "Lock" || method(call) == "RLock": // with the unlocks: see below
			case method(call) == "Unlock" || method(call) == "RUnlock":
			default:
				replace("statement removed", n, "")
			}
		case *ast.FuncDecl:
			f = functionOf(n, offset)
			if edits := locks(n, offset, text); len(edits) > 0 {
				add("lock dropped", n.Pos(), edits...)
			}
		}
		return true
	})
	return all
}

// locks returns the edits that take the locking of a function away, the unlocking too.
func locks(f *ast.FuncDecl, offset func(token.Pos) int, text func(ast.Node) string) (edits []edit) {
	if f.Body == nil {
		return nil
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		var call ast.Expr
		switch n := n.(type) {
		case *ast.ExprStmt:
			call = n.X
		case *ast.DeferStmt:
			call = n.Call
		}
		if c, ok := call.(*ast.CallExpr); ok && slices.Contains([]string{"Lock", "RLock", "Unlock", "RUnlock"}, method(c)) {
			receiver := text(c.Fun.(*ast.SelectorExpr).X)
			edits = append(edits, edit{offset(n.Pos()), offset(n.End()), "_ = &" + receiver})
			return false
		}
		return true
	})
	return edits
}

// method returns the name of the method that is called, if one is.
func method(call *ast.CallExpr) string {
	if s, ok := call.Fun.(*ast.SelectorExpr); ok && len(call.Args) == 0 {
		return s.Sel.Name
	}
	return ""
}

// function is a function or a method, with what a copy of it under another name and a
// call of the copy need.
type function struct {
	from, to, body int    // its offsets, and that of what follows the opening brace
	edits          []edit // name each parameter and the copy
	call           string // of the copy
}

// copied stands for what distinguishes the name of a copy, which is not exported, as
// tests list the exported ones.
const copied = "copied_"

// functionOf returns the function of a declaration, nil if it has no body.
func functionOf(n *ast.FuncDecl, offset func(token.Pos) int) *function {
	if n.Body == nil || n.Name.Name == "init" {
		return nil
	}
	f := &function{from: offset(n.Pos()), to: offset(n.End()), body: offset(n.Body.Lbrace) + 1}
	count := 0
	names := func(list *ast.FieldList) (names []string) {
		if list == nil {
			return nil
		}
		for _, field := range list.List {
			dots := ""
			if _, ok := field.Type.(*ast.Ellipsis); ok {
				dots = "..."
			}
			if len(field.Names) == 0 {
				count++
				name := "unnamed" + strconv.Itoa(count)
				f.edits = append(f.edits, edit{offset(field.Type.Pos()), offset(field.Type.Pos()), name + " "})
				names = append(names, name+dots)
			}
			for _, id := range field.Names {
				name := id.Name
				if name == "_" {
					count++
					name = "unnamed" + strconv.Itoa(count)
					f.edits = append(f.edits, edit{offset(id.Pos()), offset(id.End()), name})
				}
				names = append(names, name+dots)
			}
		}
		return names
	}
	if n.Recv != nil {
		f.call = names(n.Recv)[0] + "."
	}
	f.edits = append(f.edits, edit{offset(n.Name.Pos()), offset(n.Name.Pos()), copied})
	f.call += copied + n.Name.Name
	if n.Type.TypeParams != nil {
		var types []string
		for _, field := range n.Type.TypeParams.List {
			for _, id := range field.Names {
				types = append(types, id.Name)
			}
		}
		f.call += "[" + strings.Join(types, ", ") + "]"
	}
	f.call += "(" + strings.Join(names(n.Type.Params), ", ") + ")"
	if n.Type.Results != nil {
		f.call = "return " + f.call
	} else {
		f.call += "; return"
	}
	return f
}
