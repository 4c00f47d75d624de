import java.util.regex.*;
/** Records which names java.util.regex matches with which patterns. */
public class RegexVectors {
  static String js(String s){ StringBuilder b=new StringBuilder("\""); for(char c: s.toCharArray()){ if(c=='"'||c=='\\') b.append('\\').append(c); else if(c<32||c>126) b.append(String.format("\\u%04x",(int)c)); else b.append(c);} return b.append("\"").toString(); }
  public static void main(String[] a){
    String[] pats={".*","orders","orders|pay.*","^(?!internal-).*$","(?i)Orders","\\Qa.b\\E|c","a*+a","a*+b","[a-z&&[^b]]+","[a-z&&[def]x]","[a-c[x-z]]+","(a|b)\\1","\\d{2}","a{2}{3}","a**","*a","a{","a{,3}","[]a]","[^]a]","[a","a]","}","{a","(?x) a b # c","(?x)a[ b]","[[:alpha:]]+","[a--]","[+--]+","a\\Q\\E*","[a-\\Qz\\E]+","\\1\\Q2\\E","(?U)\\w+","\\w+","(?<n>a)\\k<n>","\\p{Alpha}+","\\pL+","\\p{IsLatin}+","\\p{javaLowerCase}+","\\P{Punct}+","\\x41","\\u0041","\\0101","\\cA","\\y","\\-\\_\\.","\\_","a(?#x)","(?<=a)b","(?:ab)++","(?>a|ab)c","x?+x","a{1,2}+a","^*a","$","a$","\\Aa\\z","\\Ga\\Z","","|","a||b","()","[a-]+","[-a]+","[a&b]+","[a&&]+","[&&a]+","[a&&&b]+","[a&&b&&c]","[^a&&b]","[^a[b]]","[\\w&&[^\\d]]+","\\v","\\h","\\R","[\\h]","\\X","a.b","(?s).","(?-i)a","(?i:a)b","((?i)a)b","(?d)a","\\bfoo\\b","foo\\b-bar","[\\^x]+","[x^]+","[~~a]+","[a~~b]+","#a","a#b","a b","[ #]+","é","[é-ü]+","(?iu)É","(?i)É","\\e","\\ca","[\\\\]","\\\\","a\\","(?","(?<","(?<1>a)","(?<a>a)(?<a>b)","\\k<zz>","[\\b]","[z-a]","[\\d-z]+","[a-\\d]+","[a-c-e]+","x{0}","x{2147483648}","x{99999}","(?a)","[.]","[$^]","[\\Q]\\E]","\\N{LATIN SMALL LETTER A}","\\8","(a)\\10","\\p{InGreek}","\\p{L}\\p{Nd}","\\p{IsAlphabetic}","\\p{Lu}","\\p{script=Latin}","\\p{Lower}","[\\p{L}&&[^\\p{Lu}]]+"};
    String[] names={"","a","b","c","aa","ab","abc","bb","aab","A","B","orders","ORDERS","orders2","payments","internal","internal-x","a.b","axb","a-b","a_b","12","1","1a","x","xx","aaaaaa","foo","foo-bar","]","}","[","{","^","$","-","+",",","&","~","~a","#","#a","a#b","a b","ab c"," ","_","._-","-_.","\u00e9","\u00c9","\u00fc","\n","\r\n","\u0001","\u001b","\t","\\",":","::","alph:","d","e","bc","ac","ababab","ababc","abb","aac","z","m","Z9","L","A1","a1"};
    StringBuilder o=new StringBuilder("{\n\"names\": [");
    for(int i=0;i<names.length;i++) o.append(i>0?", ":"").append(js(names[i]));
    o.append("],\n\"patterns\": [\n");
    for(int i=0;i<pats.length;i++){ o.append("[").append(js(pats[i])).append(", ");
      try{ Pattern p=Pattern.compile(pats[i]); StringBuilder m=new StringBuilder(); boolean f=true; for(String n:names) { if(p.matcher(n).matches()){ m.append(f?"":", ").append(js(n)); f=false; } }
        o.append("[").append(m).append("]"); } catch(PatternSyntaxException e){ o.append("null"); }
      o.append("]").append(i+1<pats.length?",\n":"\n"); }
    System.out.print(o.append("]}\n"));
  }
}
