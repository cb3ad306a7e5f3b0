/*
 * Bars are written as numbers as they come; the page's own script draws them on a canvas, so that a
 * million bars still open in a browser.
 *
 * Invariant: the page loads nothing from elsewhere.
 */
#include "timeline.h"

static const char head[] =
    "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Sluice timeline</title><style>\n"
    "body{font:14px system-ui,sans-serif;margin:16px;color:#222;background:#fff}h1{font-size:18px;margin:0 0 8px}\n"
    "#legend span{display:inline-block;margin-right:14px}#legend i{display:inline-block;width:12px;height:12px;"
    "margin-right:4px;vertical-align:-1px}\n"
    "canvas{border:1px solid #ccc;width:100%;cursor:grab;display:block;margin-top:8px}#tip{min-height:1.4em;"
    "margin-top:6px}button{font:inherit}\n"
    "</style></head><body><h1>";

static const char middle[] =
    "</h1><div id=\"legend\"></div><canvas id=\"c\"></canvas><div id=\"tip\">Drag to move, wheel to zoom, point at a "
    "bar for its numbers. <button id=\"all\">Show all</button></div><script>\n"
    "const bars=[\n";

static const char tail[] =
    "];\n"
    "const names=['gate','pack','wait','group','unpack','local','commit'];\n"
    "const colors=['#bbbbbb','#4e9a06','#e5e5e5','#3465a4','#c17d11','#75507b','#cc0000'];\n"
    "const legend=document.getElementById('legend');\n"
    "names.forEach((n,i)=>{const s=document.createElement('span'),b=document.createElement('i');"
    "b.style.background=colors[i];s.append(b,n);legend.append(s)});\n"
    "let end=0,ranks=0;for(const b of bars){if(b[4]>end)end=b[4];if(b[0]+1>ranks)ranks=b[0]+1}\n"
    "const c=document.getElementById('c'),g=c.getContext('2d'),tip=document.getElementById('tip');\n"
    "const left=64,top0=22;let row=Math.max(3,Math.min(28,Math.floor(900/Math.max(1,ranks))));\n"
    "let from=0,span=end||1;\n"
    "function size(){const d=devicePixelRatio||1;c.style.height=(top0+ranks*row+6)+'px';c.width=c.clientWidth*d;"
    "c.height=(top0+ranks*row+6)*d;g.setTransform(d,0,0,d,0,0);draw()}\n"
    "function x(t){return left+(t-from)/span*(c.clientWidth-left-8)}\n"
    "function draw(){const w=c.clientWidth;g.clearRect(0,0,w,c.height);g.font='11px system-ui';g.fillStyle='#555';\n"
    " const step=Math.pow(10,Math.floor(Math.log10(span/4)));\n"
    " for(let t=Math.ceil(from/step)*step;t<=from+span;t+=step*(span/step>12?2:1)){const p=x(t);"
    "g.fillText((t*1e3).toPrecision(4)+' ms',p+2,12);g.fillRect(p,14,1,4)}\n"
    " if(row>=9)for(let r=0;r<ranks;r++)g.fillText('rank '+r,4,top0+r*row+row*0.7);\n"
    " for(const b of bars){if(b[4]<from||b[3]>from+span)continue;const a=Math.max(left,x(b[3])),"
    "z=Math.min(w,x(b[4]));g.fillStyle=colors[b[2]];const lane=b[2]===1||b[2]===5?0:b[2]===4?2:1,h=Math.max(1,"
    "(row-1)/3);g.fillRect(a,top0+b[0]*row+lane*h,Math.max(0.5,z-a),h)}}\n"
    "c.addEventListener('wheel',e=>{e.preventDefault();const f=e.deltaY>0?1.25:0.8,t=from+(e.offsetX-left)/"
    "(c.clientWidth-left-8)*span;span=Math.min(end||1,span*f);from=Math.max(0,Math.min((end||1)-span,t-(t-from)*f));"
    "draw()},{passive:false});\n"
    "let "
    "drag=null;c.addEventListener('mousedown',e=>drag=[e.offsetX,from]);addEventListener('mouseup',()=>drag=null);\n"
    "c.addEventListener('mousemove',e=>{if(drag){from=Math.max(0,Math.min((end||1)-span,drag[1]-(e.offsetX-drag[0])/"
    "(c.clientWidth-left-8)*span));draw();return}\n"
    " const t=from+(e.offsetX-left)/(c.clientWidth-left-8)*span,r=Math.floor((e.offsetY-top0)/row),"
    "lane=Math.floor(((e.offsetY-top0)%row)/((row-1)/3));\n"
    " for(const b of bars){const l=b[2]===1||b[2]===5?0:b[2]===4?2:1;if(b[0]===r&&l===lane&&b[3]<=t&&t<=b[4]){"
    "tip.textContent='rank '+b[0]+', window '+b[1]+', '+names[b[2]]+': '+(b[3]*1e3).toFixed(3)+' to '+(b[4]*1e3)"
    ".toFixed(3)+' ms, '+((b[4]-b[3])*1e3).toFixed(3)+' ms';return}}});\n"
    "document.getElementById('all').onclick=()=>{from=0;span=end||1;draw()};addEventListener('resize',size);size();\n"
    "</script></body></html>\n";

static void put_escaped(FILE *file, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '<')
            fputs("&lt;", file);
        else if (*text == '&')
            fputs("&amp;", file);
        else
            fputc(*text, file);
    }
}

sluice_status timeline_open(const char *path, const char *title, struct timeline *ret)
{
    struct timeline timeline = {.bars = 0};
    sluice_status status = sl_out_open(path, &timeline.out);
    if (status != SLUICE_OK)
        return status;
    fputs(head, timeline.out.file);
    put_escaped(timeline.out.file, title);
    fputs(middle, timeline.out.file);
    *ret = timeline;
    return SLUICE_OK;
}

void timeline_bar(struct timeline *timeline, uint32_t rank, uint32_t window, enum timeline_kind kind, double begin,
                  double end)
{
    fprintf(timeline->out.file, "[%u,%u,%u,%.9g,%.9g],\n", rank, window, (unsigned)kind, begin, end);
    timeline->bars++;
}

sluice_status timeline_close(struct timeline *timeline)
{
    fputs(tail, timeline->out.file);
    return sl_out_commit(&timeline->out);
}

void timeline_drop(struct timeline *timeline)
{
    sl_out_drop(&timeline->out);
}
